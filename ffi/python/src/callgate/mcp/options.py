"""What every middleware takes, whatever it stands in front of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict

from callgate import ConfigError, Decision, Gate, Seeder
from callgate.integers import U64_MAX, integer
from callgate.mcp.callers import CallerFunction
from callgate.mcp.choice import PolicyChoice

OnError: TypeAlias = Literal["admit", "refuse"]
Clock: TypeAlias = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Observation:
    """One decision, for whoever measures: handed to the `observe` hook once per metered message.

    `policy` is the one that refused, or the first that was charged. `gate_ns` is the time spent in
    callgate for the message (reading it, finding the caller, deciding), in nanoseconds. `source` is
    what a caller function gets. Neither belongs in a metric's label.
    """

    policy: str
    cost: int
    decision: Decision
    gate_ns: int
    source: Any


Observe: TypeAlias = Callable[[Observation], None]


class MeterOptions(TypedDict, total=False):
    """What every middleware takes, by keyword.

    - `caller`: `function(source)`, plain or async, that answers who calls; see
      `callgate.mcp.Identity`. By default it is the user of an API key (`APIKeyMiddleware`), or the
      SDK's verified access token. On stdio there is neither: such a caller is `anonymous`.
    - `tools`: by tool, the policy that replaces the one of the caller's class for it, such as
      `{"search": "expensive"}`; or by class, `{"search": {"authenticated": "expensive"}}`. Under a
      policy for every class, callers whom nobody has verified count as one. A batch is admitted
      under all the policies that it needs, or refused whole.
    - `methods`: the same for methods besides `tools/call`, which cost nothing otherwise:
      `{"tasks/get": "polling"}`.
    - `continuations`: the same for calls that go on with one of several rounds (they carry
      `inputResponses`, which any client can send). By default they cost like any call.
    - `reserve`: units that a call sets aside in the quotas of its policy, 0 to 2^64-1; when it
      ends, what it has used takes their place, see `report_usage`.
    - `seeder`: a `callgate.Seeder` on the same gate, which asks a ledger what a caller has used
      when a quota of `must_seed=True` wants to know. Not for callers that are given as a `Key`.
    - `usage_meta`: the key of a result's `_meta` under which it says how many units were used, such
      as `"callgate/used"`. That is taken in place of what the tool reported.
    - `on_error`: what an internal error does to the call, `"admit"` (the default) or `"refuse"`. It
      is counted in `internal_errors` either way.
    - `clock`: answers the time in nanoseconds, for tests; None means the engine's own clock.
      `wall_clock` goes with it, answers the time since 1970, for quotas, and is the system's clock
      by default.
    - `observe`: called with an `Observation` after each decision.

    Whatever is of a wrong type or out of its range is a `TypeError` or a `ValueError` when the
    middleware is made: later it would be an internal error at every call.
    """

    caller: CallerFunction | None
    tools: Mapping[str, PolicyChoice] | None
    methods: Mapping[str, PolicyChoice] | None
    continuations: PolicyChoice | None
    reserve: int
    seeder: Seeder | None
    usage_meta: str | None
    on_error: OnError
    clock: Clock | None
    wall_clock: Clock | None
    observe: Observe | None


_MAX_TIMES_NS: Final = {"clock": 2**61 - 1, "wall_clock": U64_MAX}


def check_reserve(reserve: int) -> int:
    """The units; raises where they can't be set aside."""
    units = integer("reserve", reserve)
    if not 0 <= units <= U64_MAX:
        raise ConfigError(f"reserve must be 0 to 2^64-1 units, not {units}", "reserve")
    return units


def check_error_code(error_code: int) -> int:
    """The code; raises where JSON-RPC has no such codes."""
    return integer("error_code", error_code)


def check_function(name: str, function: object) -> None:
    """Raises `TypeError` where an option is neither left out nor a function."""
    if function is not None and not callable(function):
        raise TypeError(f"{name} must be a function or None, not {type(function).__name__}")


def check_clock(name: str, clock: Clock | None) -> None:
    """Raises where a clock does not answer times that a gate takes. Asks it once."""
    check_function(name, clock)
    if clock is None:
        return
    now_ns = integer(f"what {name} answers", clock(), "an int of nanoseconds")
    if not 0 <= now_ns <= _MAX_TIMES_NS[name]:
        bits = _MAX_TIMES_NS[name].bit_length()
        raise ConfigError(f"what {name} answers must be 0 to 2^{bits}-1 ns, not {now_ns}", name)


def check_seeder(seeder: Seeder | None, gate: Gate) -> None:
    """Raises where it would admit calls at another gate, or is something else."""
    if seeder is None:
        return
    if not isinstance(seeder, Seeder):
        raise TypeError(f"seeder must be a Seeder or None, not {type(seeder).__name__}")
    if seeder.gate is not gate:
        raise ConfigError("seeder must be one on the same gate, not on another", "seeder")


def check_str(name: str, value: str | None) -> None:
    """Raises `TypeError` where an option is neither left out nor a str."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, not {type(value).__name__}")
