"""Which policy a call is charged under: its caller's class decides, unless the call says more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from callgate import Gate, Key
from callgate.mcp.callers import ANONYMOUS, FORWARDED_BEARER, Caller
from callgate.mcp.message import METERED_METHOD, METERED_METHODS, Entry

PolicyChoice: TypeAlias = str | Mapping[str, str]
"""A policy's name, for callers of every class; or a policy's name for each class, by the name of
the class's own policy: `{"authenticated": "expensive"}`. Classes that are left out stay as they
are."""

UNVERIFIED: Final = "\0unverified"
"""Under a policy for every class, callers whom nobody has verified are one caller, with this name:
else somebody without a token would have as many allowances as they can think of tokens."""

UNNAMED_TOOL: Final = "\0unnamed"
"""Charged for a call that names no tool: no tool can have this name, and a key is never empty."""

_PER_CALLER: Final = frozenset({"caller", "caller_tool"})
_PER_TOOL: Final = frozenset({"tool", "caller_tool"})


@dataclass(frozen=True, slots=True)
class Charged:
    """What calls are charged under: equal for calls that one admission is enough for."""

    policy: str
    identity: str | bytes | Key | None
    tool: str | None


class PolicyChooser:
    """The choices of one middleware, checked against its gate."""

    def __init__(
        self,
        gate: Gate,
        *,
        tools: Mapping[str, PolicyChoice] | None = None,
        methods: Mapping[str, PolicyChoice] | None = None,
        continuations: PolicyChoice | None = None,
    ) -> None:
        """Raises `ValueError` where a choice names a policy that the gate does not have."""
        self._tools = _choices("tools", tools)
        self._methods = _choices("methods", methods)
        self._continuations = continuations
        if METERED_METHOD in self._methods:
            raise ValueError(f"methods can't have {METERED_METHOD!r}: see tools for its policies")
        choices = {f"tools[{name!r}]": choice for name, choice in self._tools.items()}
        choices |= {f"methods[{name!r}]": choice for name, choice in self._methods.items()}
        if continuations is not None:
            choices["continuations"] = continuations
        for where, choice in choices.items():
            _check(gate, where, choice)
        self.methods = METERED_METHODS | self._methods.keys()
        self._per_caller = _with_scope(gate, _PER_CALLER)
        self._per_tool = _with_scope(gate, _PER_TOOL)

    def charged(self, entry: Entry, caller: Caller) -> Charged | None:
        """What `caller` is charged under for `entry`; None where nothing is asked for it."""
        for choice in self._choices(entry):
            if isinstance(choice, str):
                is_verified = caller.policy not in (ANONYMOUS, FORWARDED_BEARER)
                return self._under(choice, caller.identity if is_verified else UNVERIFIED, entry)
            if caller.policy in choice:
                return self._under(choice[caller.policy], caller.identity, entry)
        if entry.method in self._methods:
            return None
        tool = self._tool(caller.policy, entry)
        return Charged(caller.policy, caller.identity, tool)

    def _choices(self, entry: Entry) -> list[PolicyChoice]:
        """The first that has something to say about the caller's class decides."""
        if entry.method != METERED_METHOD:
            return [self._methods[entry.method]] if entry.method in self._methods else []
        choices: list[PolicyChoice] = []
        if entry.is_continuation and self._continuations is not None:
            choices.append(self._continuations)
        if entry.tool is not None and entry.tool in self._tools:
            choices.append(self._tools[entry.tool])
        return choices

    def _under(self, policy: str, identity: str | bytes | Key | None, entry: Entry) -> Charged:
        if policy in self._per_caller:
            known = UNVERIFIED if identity is None else identity
            return Charged(policy, known, self._tool(policy, entry))
        return Charged(policy, None, self._tool(policy, entry))

    def _tool(self, policy: str, entry: Entry) -> str | None:
        """Each tool's state is charged for its own calls; where none is kept, for all at once."""
        return (entry.tool or UNNAMED_TOOL) if policy in self._per_tool else None


def _with_scope(gate: Gate, scopes: frozenset[str]) -> frozenset[str]:
    return frozenset(
        name for name, rules in gate.policies.items() if any(scope in scopes for _, scope in rules)
    )


def _choices(option: str, choices: Mapping[str, PolicyChoice] | None) -> dict[str, PolicyChoice]:
    if choices is not None and not isinstance(choices, Mapping):
        raise TypeError(f"{option} must be a mapping of names, not {type(choices).__name__}")
    for name in choices or ():
        if not isinstance(name, str):
            raise TypeError(f"{option}: a name must be a str, not {type(name).__name__}")
    return dict(choices or {})


def _check(gate: Gate, where: str, choice: PolicyChoice) -> None:
    if isinstance(choice, str):
        names = [choice]
    elif isinstance(choice, Mapping):
        names = [*choice, *choice.values()]
    else:
        kind = type(choice).__name__
        raise TypeError(f"{where} must be a policy's name or a mapping of them, not {kind}")
    for name in names:
        if name not in gate.policies:
            known = sorted(gate.policies)
            raise ValueError(f"{where}: the gate has no policy named {name!r}; it has {known}")
