"""From a gate's configuration, by name, to what the engine takes, by index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, TypeVar, cast

from callgate import _engine
from callgate.errors import CallError, ConfigError
from callgate.integers import integer
from callgate.limits import KINDS, KINDS_TEXT, EngineLimit, Limit, Off, Quota, engine_limit
from callgate.vocabulary import Scope

SCOPES: Final[dict[str, int]] = {
    "caller": _engine.CALLGATE_SCOPE_CALLER,
    "tool": _engine.CALLGATE_SCOPE_TOOL,
    "caller_tool": _engine.CALLGATE_SCOPE_CALLER_TOOL,
    "shared": _engine.CALLGATE_SCOPE_SHARED,
}

MEMORIES: Final = ("auto", "private")

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class GateConfig:
    """A gate's configuration: every name is known, every type is right. Ranges are the engine's."""

    limits: dict[str, Limit]
    policies: dict[str, tuple[tuple[str, Scope], ...]]
    capacity: int
    secret: bytes
    kinds: dict[str, type[Limit]]
    """The kinds that the limits have, also those that are off; not those that always were."""

    @classmethod
    def check(
        cls,
        limits: Mapping[str, Limit],
        policies: Mapping[str, Iterable[tuple[str, Scope]]],
        capacity: int,
        secret: bytes | None,
    ) -> GateConfig:
        """Raises ConfigError, or TypeError where something is of a wrong type."""
        if secret is None:
            secret = os.urandom(16)
        if not isinstance(secret, bytes):
            raise TypeError(f"secret must be 16 bytes, not {type(secret).__name__}")
        known = {name: _limit(name, limit) for name, limit in _named("limits", limits)}
        return cls(
            limits=known,
            policies={n: _policy(n, rules, known) for n, rules in _named("policies", policies)},
            capacity=integer("capacity", capacity),
            secret=secret,
            kinds={
                name: type(limit) for name, limit in known.items() if not isinstance(limit, Off)
            },
        )

    def engine_rules(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The policies, as limits' indexes and the engine's scopes."""
        index = {name: n for n, name in enumerate(self.limits)}
        return tuple(
            tuple((index[limit], SCOPES[scope]) for limit, scope in rules)
            for rules in self.policies.values()
        )

    def engine_limits(self) -> tuple[EngineLimit, ...]:
        """The limits, as the engine takes them."""
        return tuple(engine_limit(limit) for limit in self.limits.values())

    def zones(self) -> dict[int, tzinfo]:
        """The zones of the quotas that have one, by the limit's index."""
        return {
            n: limit.tz
            for n, limit in enumerate(self.limits.values())
            if isinstance(limit, Quota) and limit.tz is not None
        }

    def index_of(self, argument: str, limit: str, kind: type[Limit] | None = None) -> int:
        """The index of a limit. Raises CallError where it is unknown, or not of that kind."""
        if not isinstance(limit, str):
            raise TypeError(f"{argument} must be a str, not {type(limit).__name__}")
        if limit not in self.limits:
            text = f"{argument}: limit {limit!r} is unknown; this gate has {_listed(self.limits)}"
            raise CallError(text, argument)
        if kind is not None and self.kinds.get(limit) is not kind:
            found = _listed(name for name, known in self.kinds.items() if known is kind)
            text = f"{argument}: {limit!r} is no {kind.__name__}; of these this gate has {found}"
            raise CallError(text, argument)
        return list(self.limits).index(limit)

    def replace(self, name: str, limit: Limit) -> None:
        """Notes that a limit was changed."""
        self.limits[name] = limit
        if not isinstance(limit, Off):
            self.kinds[name] = type(limit)

    def check_change(self, name: str, limit: Limit) -> None:
        """Raises ConfigError where the limit would become one of another kind."""
        kind = self.kinds.get(name)
        if kind is not None and not isinstance(limit, (kind, Off)):
            raise ConfigError(
                f"limit {name!r}: kind must stay what it is, {kind.__name__}, or be OFF; not"
                f" {type(limit).__name__}",
                "kind",
                limit=name,
            )

    def scope_of(self, limit: str, scope: Scope | None) -> Scope:
        """The scope with which the policies use a limit; where there are several, the given one.
        Raises CallError where it isn't one of theirs."""
        known = self.scopes_of(limit)
        if scope in known:
            return scope
        if scope is None and len(known) == 1:
            return known[0]
        if not known:
            text = f"limit {limit!r} is in no policy of this gate: it has no state"
        else:
            said = "is missing" if scope is None else f"can't be {scope!r}"
            text = f"scope {said}: the policies keep limit {limit!r} by {_listed(known)}"
        raise CallError(text, "scope" if known else "limit")

    def scopes_of(self, limit: str) -> list[Scope]:
        """The scopes with which the policies use a limit, each once."""
        rules = (rule for rules in self.policies.values() for rule in rules)
        return list(dict.fromkeys(scope for name, scope in rules if name == limit))


def _named(field: str, mapping: Mapping[str, _Value]) -> list[tuple[str, _Value]]:
    """The items of `limits` or `policies`, their names checked."""
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{field} must be a mapping of names, not {type(mapping).__name__}")
    items: dict[str, _Value] = {}
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise TypeError(f"{field}: a name must be a str, not {type(key).__name__}")
        name = str.__str__(key)
        if not name:
            raise ConfigError(f"{field}: a name is empty; it must have 1 or more characters", field)
        if not _is_text(name):
            raise ConfigError(f"{field}: the name {name!r} can't be encoded as UTF-8", field)
        if "\0" in name:
            raise ConfigError(f"{field}: the name {name!r} has a NUL character", field)
        if name in items:
            raise ConfigError(f"{field}: the name {name!r} is there twice", field)
        items[name] = value
    return list(items.items())


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _limit(name: str, limit: Limit) -> Limit:
    if isinstance(limit, KINDS):
        return limit
    raise TypeError(f"limits[{name!r}] must be {KINDS_TEXT}, not {type(limit).__name__}")


def _policy(
    name: str, rules: Iterable[tuple[str, Scope]], limits: Mapping[str, Limit]
) -> tuple[tuple[str, Scope], ...]:
    if isinstance(rules, (str, bytes, Mapping)) or not isinstance(rules, Iterable):
        raise TypeError(
            f"policies[{name!r}] must be a list of (limit, scope), not {type(rules).__name__}"
        )
    return tuple(_rule(name, rule, limits) for rule in rules)


def _rule(policy: str, rule: object, limits: Mapping[str, Limit]) -> tuple[str, Scope]:
    if isinstance(rule, (str, bytes)) or not isinstance(rule, Sequence) or len(rule) != 2:
        raise TypeError(f"policies[{policy!r}]: {rule!r} must be a pair (limit, scope)")
    limit, scope = rule
    if not isinstance(limit, str) or not isinstance(scope, str):
        raise TypeError(f"policies[{policy!r}]: {rule!r} must be a pair of str (limit, scope)")
    if limit not in limits:
        raise ConfigError(
            f"policy {policy!r}: limit {limit!r} is unknown; the gate has {_listed(limits)}",
            "limit",
            policy=policy,
        )
    if scope not in SCOPES:
        raise ConfigError(
            f"policy {policy!r}: scope {scope!r} of limit {limit!r} must be one of"
            f" {_listed(SCOPES)}",
            "scope",
            limit=limit,
            policy=policy,
        )
    return str.__str__(limit), cast(Scope, str.__str__(scope))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
