from typing import final

from callgate.limits import EngineLimit
from callgate.vocabulary import Domain, Outcome, Reason, Settled

VERSION: str
IS_LOCK_FREE: bool
CALLGATE_KIND_OFF: int
CALLGATE_KIND_RATE: int
CALLGATE_KIND_CONCURRENCY: int
CALLGATE_KIND_QUOTA: int
CALLGATE_SCOPE_CALLER: int
CALLGATE_SCOPE_TOOL: int
CALLGATE_SCOPE_CALLER_TOOL: int
CALLGATE_SCOPE_SHARED: int

def check_limit(limit: EngineLimit, /) -> tuple[str, str] | None: ...

@final
class Key:
    @property
    def domain(self) -> Domain: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class Permit:
    __slots__ = ()

@final
class Decision:
    @property
    def admitted(self) -> bool: ...
    @property
    def reason(self) -> Reason | None: ...
    @property
    def by(self) -> str | None: ...
    @property
    def retry_after_ns(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def remaining(self) -> int: ...
    @property
    def reset_after_ns(self) -> int: ...
    @property
    def permit(self) -> Permit | None: ...
    def __bool__(self) -> bool: ...

class Gate:
    def key(self, identity: str | bytes, domain: Domain = "caller") -> Key: ...
    def try_admit(
        self,
        policy: str,
        caller: str | bytes | Key | None = None,
        tool: str | bytes | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Decision: ...
    def settle(
        self,
        permit: Permit,
        outcome: Outcome = "success",
        used: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Settled: ...
    def _open(
        self,
        parts: tuple[
            tuple[str, ...],
            tuple[EngineLimit, ...],
            tuple[str, ...],
            tuple[tuple[tuple[int, int], ...], ...],
            int,
            bytes,
            bool,
        ],
        /,
    ) -> None: ...
    def _peek(
        self,
        policy: str,
        caller: str | bytes | Key | None = None,
        tool: str | bytes | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> list[tuple[str, Reason | None, int, int, int, int]]: ...
    def _reconfigure(self, limit: int, to: EngineLimit, now_ns: int | None, /) -> None: ...
    def _stats(
        self, now_ns: int | None, unix_ns: int | None, /
    ) -> tuple[int, int, int, int, int]: ...
    def _guards(self, limit: int, now_ns: int | None, /) -> tuple[int, int, int, int, int]: ...
    def _metrics(self, now_ns: int | None, unix_ns: int | None, /) -> str: ...
    def _seed(
        self,
        limit: int,
        scope: int,
        caller: str | bytes | Key | None,
        tool: str | bytes | Key | None,
        used: int,
        now_ns: int | None,
        unix_ns: int | None,
        /,
    ) -> bool: ...
    def _use_zones(self, whether: bool, /) -> None: ...
    def _set_windows(
        self, windows: list[tuple[int, int, int]], from_s: int, until_s: int, /
    ) -> None: ...
    def _decisions(self, policy: int, /) -> tuple[int, list[tuple[int, Reason, int]]]: ...
