"""The words of callgate, as types: the same in every language that it is used from."""

from __future__ import annotations

from typing import Literal, TypeAlias

Domain: TypeAlias = Literal["caller", "tool"]
"""What a key stands for."""

Scope: TypeAlias = Literal["caller", "tool", "caller_tool", "shared"]
"""Whose state a limit keeps: one for each caller, for each tool, for each pair of both, or one."""

Reason: TypeAlias = Literal[
    "rate", "concurrency", "breaker_open", "quota", "unseeded", "table_full", "never"
]
"""Why a call is refused."""

Outcome: TypeAlias = Literal["success", "failure", "abandoned", "cancelled"]
"""What became of a call. "abandoned": it ran, but its client went away. "cancelled": it never ran,
so that its charges are given back."""

Settled: TypeAlias = Literal["ok", "already_settled", "lapsed"]
"""What a settlement comes to. "lapsed": it came after the lease of the call, whose place had been
taken for lost; of that limit nothing was changed."""

Memory: TypeAlias = Literal["auto", "private"]
"""Where a gate's state is kept. "auto": shared with every process that is forked later. "private":
a forked process has a copy."""
