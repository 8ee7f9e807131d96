"""What callgate raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.durations import duration_text

if TYPE_CHECKING:
    from callgate._engine import Decision
    from callgate.vocabulary import Reason


class ConfigError(ValueError):
    """A gate can't be made, or a limit can't be changed so. The message says what is allowed.

    field   the field to blame: "count", "period_ns", "burst", "scope", "capacity", ...
    limit   the name of the limit that it belongs to, or None
    policy  the name of the policy that it belongs to, or None
    """

    def __init__(
        self, message: str, field: str, *, limit: str | None = None, policy: str | None = None
    ) -> None:
        super().__init__(message)
        self.field = field
        self.limit = limit
        self.policy = policy

    def __reduce__(self) -> tuple[object, ...]:
        names = {"limit": self.limit, "policy": self.policy}
        return (type(self), (self.args[0], self.field), names)


class CallError(ValueError):
    """A call can't be decided or settled; nothing was charged. The message says what is allowed.

    field   the argument to blame: "policy", "caller", "cost", "now_ns", ..., or None
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.args[0], self.field))


class Refused(Exception):
    """`Gate.admit` refuses the call. `decision` says why, and when to come back."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(_refusal_text(decision))
        self.decision = decision

    @property
    def reason(self) -> Reason:
        """Why: "rate", "table_full" or another of `callgate.vocabulary.Reason`."""
        reason = self.decision.reason
        assert reason is not None, "a refusal has a reason"
        return reason

    @property
    def by(self) -> str:
        """The name of the limit that refused."""
        by = self.decision.by
        assert by is not None, "a limit refused"
        return by

    @property
    def retry_after_ns(self) -> int:
        """The limit that refused would admit the call in exactly so many nanoseconds; 0 where no
        time is known."""
        return self.decision.retry_after_ns


def _refusal_text(decision: Decision) -> str:
    head = f"refused by limit {decision.by!r} ({decision.reason})"
    if decision.reason == "never":
        return f"{head}: the call asks for more than the {decision.limit} that it can ever hold"
    if decision.reason == "concurrency":
        return f"{head}: all of its {decision.limit} places are taken"
    if decision.reason == "unseeded":
        return f"{head}: it waits to be told what was used before"
    if decision.retry_after_ns == 0:
        return f"{head}: try again later"
    return f"{head}: retry in {duration_text(decision.retry_after_ns)}"


# What the engine calls its fields, where a Python program sees them under another name.
_FIELDS = {"limit_count": "limits", "policy_count": "policies", "rule_count": "rules"}


def config_error(
    field: str | None, sentence: str, limit: str | None = None, policy: str | None = None
) -> ConfigError:
    """The engine's verdict on a configuration, in the words of a Python program. Called from C."""
    named = _FIELDS.get(field or "", field or "")
    text = sentence.replace(field, named, 1) if field else sentence
    blamed = [f"limit {limit!r}"] if limit is not None else []
    blamed += [f"policy {policy!r}"] if policy is not None else []
    return ConfigError(": ".join([*blamed, text]), named, limit=limit, policy=policy)


def call_error(field: str | None, sentence: str) -> CallError:
    """What the engine has against a call, the argument named first. Called from C."""
    if field is not None and not sentence.startswith(field):
        sentence = f"{field}: {sentence}"
    return CallError(sentence, field)
