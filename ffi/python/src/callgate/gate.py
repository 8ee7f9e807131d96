"""Gate: what a program makes once, and asks about every call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from callgate import _engine
from callgate._engine import IS_LOCK_FREE, Key
from callgate.call import Call
from callgate.config import MEMORIES, GateConfig
from callgate.errors import CallError, ConfigError, Refused
from callgate.limits import Limit, Off, RateLimit, engine_limit
from callgate.reports import Report, Stats
from callgate.vocabulary import Memory, Reason, Scope


class Gate(_engine.Gate):
    """Decides calls: limits, the policies that apply them, and the state of all callers.

    gate = Gate(
        limits={"caller": RateLimit(30, per="1s", burst=60), "all": RateLimit(1000, per="1s")},
        policies={"authenticated": [("caller", "caller"), ("all", "shared")]},
        capacity=10_000,
    )
    with gate.admit("authenticated", caller="user:1001") as call:   # raises Refused
        ...

    limits    name -> RateLimit or OFF; 1 to 64 of them
    policies  name -> list of (limit's name, scope), 1 to 8; 1 to 64 policies. Each is for a class
              of callers. Its limits are charged in order, all or none. Scopes say whose state a
              limit keeps: "caller", "tool", "caller_tool" (one for each pair), "shared" (one for
              all)
    capacity  how many distinct callers are sure to find a place, 1 to 67,108,864: a guarantee,
              not a cap. Each tool of a limit kept by tool takes the place of a caller, so does each
              pair. All memory is taken now; it never grows
    memory    "auto": shared with all processes that are forked later, so that workers keep one set
              of limits (make the gate before they fork). "private": a forked process has a copy
    secret    16 random bytes under which identities are hashed; a new one by default

    Raises ConfigError where something is out of its range, and TypeError where it is of a wrong
    type. Every method may be called from any thread.
    """

    __slots__ = ("__weakref__", "_config")

    def __init__(
        self,
        *,
        limits: Mapping[str, Limit],
        policies: Mapping[str, Iterable[tuple[str, Scope]]],
        capacity: int = 10_000,
        memory: Memory = "auto",
        secret: bytes | None = None,
    ) -> None:
        config = GateConfig.check(limits, policies, capacity, secret)
        parts = (
            tuple(config.limits),
            config.engine_limits(),
            tuple(config.policies),
            config.engine_rules(),
            config.capacity,
            config.secret,
            _is_shared(memory),
        )
        self._open(parts)
        self._config = config

    @property
    def limits(self) -> Mapping[str, Limit]:
        """The limits by name, as this process last set them. Read-only: see `reconfigure`."""
        return MappingProxyType(self._config.limits)

    @property
    def policies(self) -> Mapping[str, tuple[tuple[str, Scope], ...]]:
        """The policies by name. Read-only."""
        return MappingProxyType(self._config.policies)

    @property
    def capacity(self) -> int:
        """How many distinct callers are sure to find a place."""
        return self._config.capacity

    def admit(
        self,
        policy: str,
        caller: str | bytes | Key | None = None,
        tool: str | bytes | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Call:
        """Decide one call, for a `with` block. Raises Refused where it may not run.

        The arguments are those of `try_admit`. The call is settled when the block ends: see `Call`.
        """
        decision = self.try_admit(policy, caller, tool, cost, reserve, now_ns, unix_ns)
        if not decision:
            raise Refused(decision)
        return Call(self, decision, now_ns, unix_ns)

    def peek(
        self,
        policy: str,
        caller: str | bytes | Key | None = None,
        tool: str | bytes | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> list[Report]:
        """What each limit of the policy would say to the call, in order. Changes nothing.

        The arguments are those of `try_admit`.
        """
        found = self._peek(policy, caller, tool, cost, reserve, now_ns, unix_ns)
        return [Report(*report) for report in found]

    def reconfigure(self, name: str, limit: Limit, now_ns: int | None = None) -> None:
        """Change a limit, for all callers at once and in every process that shares the memory.

        Every caller keeps its debt, but never more than the new limit can express; nobody gets a
        new burst. What was charged before is not given back on a cancellation any more.

        name    the limit's name
        limit   a RateLimit or OFF
        now_ns  as in `try_admit`

        Not by two processes at once (threads are kept apart). `limits` shows the change in this
        process only. Raises CallError where there is no such limit.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        if not isinstance(limit, (RateLimit, Off)):
            raise TypeError(f"limit must be a RateLimit or OFF, not {type(limit).__name__}")
        limits = self._config.limits
        if name not in limits:
            known = ", ".join(map(repr, limits))
            raise CallError(f"name: limit {name!r} is unknown; this gate has {known}", "name")
        self._reconfigure(list(limits).index(name), engine_limit(limit), now_ns)
        limits[name] = limit

    def stats(self, now_ns: int | None = None) -> Stats:
        """What the table holds and what was decided: for metrics, since it walks the table."""
        table = self._stats(now_ns)
        return Stats(*table, decisions=self._decisions_by_name())

    def _decisions_by_name(self) -> dict[tuple[str, str | None, Reason | None], int]:
        decisions: dict[tuple[str, str | None, Reason | None], int] = {}
        for index, (policy, rules) in enumerate(self._config.policies.items()):
            admitted, refused = self._decisions(index)
            decisions[policy, None, None] = admitted
            for rule, reason, count in refused:
                key = (policy, rules[rule][0], reason)
                decisions[key] = decisions.get(key, 0) + count
        return decisions

    def __repr__(self) -> str:
        if not hasattr(self, "_config"):
            return "<callgate.Gate, not initialized>"
        limits, policies = len(self.limits), len(self.policies)
        return f"<callgate.Gate of {limits} limits, {policies} policies, capacity {self.capacity}>"


def _is_shared(memory: Memory) -> bool:
    if not isinstance(memory, str):
        raise TypeError(f"memory must be a str, not {type(memory).__name__}")
    if memory not in MEMORIES:
        raise ConfigError(f"memory must be one of {MEMORIES}, not {memory!r}", "memory")
    if memory == "auto" and not IS_LOCK_FREE:
        warnings.warn(
            "this machine can't change 128 bits at once, so forked workers won't share the gate's"
            " limits; memory='private' says so without a warning",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return memory == "auto"
