"""Gate: what a program makes once, and asks about every call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from callgate import _engine
from callgate._engine import IS_LOCK_FREE, Key
from callgate.call import Call
from callgate.config import MEMORIES, SCOPES, GateConfig
from callgate.errors import ConfigError, Refused
from callgate.limits import KINDS, KINDS_TEXT, ConcurrencyLimit, Limit, Quota, engine_limit
from callgate.metrics import END, internal_errors_of, text_of
from callgate.reports import Guards, Report, Stats
from callgate.vocabulary import Memory, Reason, Scope
from callgate.zones import AHEAD_S, day_of


class Gate(_engine.Gate):
    """Decides calls: limits, the policies that apply them, and the state of all callers.

    gate = Gate(
        limits={"caller": RateLimit(30, per="1s", burst=60),
                "tokens": Quota(50_000, per="1d", tz="Asia/Shanghai"),
                "server": ConcurrencyLimit(3, lease="2h", reject_trip=5, cooldown="30s")},
        policies={"authenticated": [("caller", "caller"), ("tokens", "caller"),
                                    ("server", "shared")]},
        capacity=10_000,
    )
    with gate.admit("authenticated", caller="user:1001") as call:   # raises Refused
        call.used(run())

    limits    name -> RateLimit, ConcurrencyLimit, Quota or OFF; 1 to 64 of them
    policies  name -> list of (limit's name, scope), 1 to 8; 1 to 64 policies. Each is for a class
              of callers. Its limits are charged in order, all or none. Scopes say whose state a
              limit keeps: "caller", "tool", "caller_tool" (one for each pair), "shared" (one for
              all). Best with concurrency limits last: no place is taken then by a call that another
              limit refuses
    capacity  how many distinct callers are sure to find a place, 1 to 67,108,864: a guarantee,
              not a cap. Each tool of a limit kept by tool takes the place of a caller, so does each
              pair. All memory is taken now; it never grows
    memory    "auto": shared with all processes that are forked later, so that workers keep one set
              of limits (make the gate before they fork). "private": a forked process has a copy
    secret    16 random bytes under which identities are hashed; a new one by default

    Raises ConfigError where something is out of its range, and TypeError where it is of a wrong
    type. Every method may be called from any thread.
    """

    __slots__ = ("__weakref__", "_config", "_internal_errors")

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
        self._internal_errors = 0
        self._use_zones(bool(config.zones()))

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
        return Call(self, decision, reserve, now_ns, unix_ns)

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

        Every caller keeps its debt, but never more than the new limit can express; nobody gets
        tokens by it, except those by which a burst is larger. What a rate limit was charged before
        is not given back on a cancellation any more. More calls in flight than a new limit allows
        end as they would have; an open breaker stays open until it was to be. A caller's window
        stays what it is; another time zone is followed from its next midnight on.

        name    the limit's name
        limit   OFF, or one of the limit's kind; a concurrency limit keeps its lease
        now_ns  as in `try_admit`

        Not by two processes at once (threads are kept apart). `limits` shows the change in this
        process only, and a time zone is followed by processes that know of it: change that in
        each. Raises CallError where there is no such limit, and ConfigError where it can't become
        what is asked for.
        """
        index = self._config.index_of("name", name)
        if not isinstance(limit, KINDS):
            raise TypeError(f"limit must be {KINDS_TEXT}, not {type(limit).__name__}")
        self._config.check_change(name, limit)
        self._reconfigure(index, engine_limit(limit), now_ns)
        self._config.replace(name, limit)
        self._use_zones(bool(self._config.zones()))

    def seed(
        self,
        limit: str,
        caller: str | bytes | Key | None,
        used: int,
        *,
        tool: str | bytes | Key | None = None,
        scope: Scope | None = None,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> bool:
        """Tell a quota what a ledger knows to have been used in the present window: once for each
        caller and window, after a restart. Returns False where it had been told; nothing is done
        then. `Seeder` does this by itself.

        limit   the quota's name
        caller  whose state it is, as in `try_admit`; None where the scope has no caller
        used    units, 0 to 2^64-1: they are added to what was used since the restart
        tool    the tool, where the scope has one
        scope   the state is the one that the policies keep under this scope; needed where they use
                the quota with several

        Raises CallError where there is no such quota, and where the table has no place for the
        caller.
        """
        index = self._config.index_of("limit", limit, Quota)
        kept_by = SCOPES[self._config.scope_of(limit, scope)]
        return self._seed(index, kept_by, caller, tool, used, now_ns, unix_ns)

    def guards(self, limit: str, now_ns: int | None = None) -> Guards:
        """What a concurrency limit and its breakers look like: for metrics, since it walks the
        table. Raises CallError where there is no such limit, or it is none of that kind."""
        index = self._config.index_of("limit", limit, ConcurrencyLimit)
        return Guards(*self._guards(index, now_ns))

    def all_guards(self, now_ns: int | None = None) -> dict[str, Guards]:
        """The same of all concurrency limits, by name, also of those that are switched off."""
        kinds = self._config.kinds
        names = [name for name in kinds if kinds[name] is ConcurrencyLimit]
        return {name: self.guards(name, now_ns) for name in names}

    def stats(self, now_ns: int | None = None, unix_ns: int | None = None) -> Stats:
        """What the table holds and what was decided: for metrics, since it walks the table."""
        table = self._stats(now_ns, unix_ns)
        return Stats(*table, decisions=self._decisions_by_name())

    def metrics(self, now_ns: int | None = None, unix_ns: int | None = None) -> str:
        """All of that as OpenMetrics text, which ends with "# EOF". No label holds an identity.

        Served by `callgate.metrics.metrics_app`, and to `prometheus_client` by
        `callgate.prometheus.CallgateCollector`.
        """
        text = self._metrics(now_ns, unix_ns).removesuffix(END)
        return text + text_of([internal_errors_of(self)])

    @property
    def internal_errors(self) -> int:
        """How many failures of the limiter itself middleware has counted here, in this process."""
        return self._internal_errors

    def count_internal_error(self) -> None:
        """For middleware: the limiter itself failed, and a call was decided without it."""
        self._internal_errors += 1

    def _roll(self, unix_s: int) -> None:
        """Sets the day of every zone, for calls at that second. Called from C, once a day."""
        windows, from_s, until_s = [], 0, 2**63
        for index, tz in self._config.zones().items():
            start, end = day_of(tz, unix_s + AHEAD_S)
            windows.append((index, start, end))
            from_s, until_s = max(from_s, start - AHEAD_S), min(until_s, end - AHEAD_S)
        self._set_windows(windows, from_s, max(until_s, 0))

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
