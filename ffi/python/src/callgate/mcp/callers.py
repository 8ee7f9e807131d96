"""Who calls: the policy that applies, and the identity that is charged under it.

Three classes, and no fourth: a *verified* caller, whose access token the server's own
authentication checked; a *forwarded bearer*, which nobody here has checked; and *anonymous*. An
absent caller is anonymous by name, never an empty key, and never pooled with callers that have one.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from callgate import Gate, Key
from callgate.mcp.body import header

AUTHENTICATED: Final = "authenticated"
ANONYMOUS: Final = "anonymous"
FORWARDED_BEARER: Final = "forwarded-bearer"

CALLER: Final = "callgate.caller"
"""Key of the ASGI scope under which a middleware puts the `Caller` that it has verified."""

_PER_CALLER: Final = frozenset({"caller", "caller_tool"})


@dataclass(frozen=True, slots=True)
class Caller:
    """The policy to apply, and the identity to charge (None where the policy asks for none)."""

    policy: str
    identity: str | bytes | Key | None = None


Identity: TypeAlias = str | bytes | Key | Caller | None
"""What a caller function may answer: an identity (charged under `authenticated`), a `Caller` that
names its policy too, or None, which means `anonymous`. An empty string or empty bytes mean None,
and so does a `Caller` without an identity, where its policy has limits per caller."""

CallerFunction: TypeAlias = Callable[[Any], Identity | Awaitable[Identity]]
"""`function(source)`, plain or async. `source` is the ASGI scope in the ASGI middleware, the SDK's
request context in the one for `mcp`, and the `MiddlewareContext` in the one for FastMCP."""


def caller_of_scope(scope: Mapping[str, Any] | None) -> Caller:
    """The caller of an HTTP request, from what is known at this point of the server's stack.

    A `Caller` in the scope, under `CALLER`, decides: `APIKeyMiddleware` puts its users there, and
    so may any other authentication. A verified access token (`scope["user"]`, as the authentication
    of `mcp` and `fastmcp` leaves it) is charged under `authenticated`. A bearer that nobody
    verified is charged under `forwarded-bearer`. Everything else, and every transport without HTTP
    (`scope` is None), is `anonymous`.
    """
    if scope is None:
        return Caller(ANONYMOUS)
    known = scope.get(CALLER)
    if isinstance(known, Caller):
        return known
    identity = token_identity(getattr(scope.get("user"), "access_token", None))
    if identity is not None:
        return Caller(AUTHENTICATED, identity)
    bearer = _bearer(scope)
    return Caller(FORWARDED_BEARER, bearer) if bearer is not None else Caller(ANONYMOUS)


def token_identity(token: Any) -> str | None:
    """The principal of a verified access token of the SDKs; None where there is no token.

    A token with a subject is charged to that subject, whichever client it came through: else a user
    who registers one more client would have one more bucket. A subject is unique per issuer only,
    so that the issuer is part of it. A token without a subject is charged to its client.
    """
    client_id = getattr(token, "client_id", None)
    if not isinstance(client_id, str) or not client_id:
        return None
    claims = getattr(token, "claims", None)
    claims = claims if isinstance(claims, Mapping) else {}
    issuer = claims.get("iss")
    subject = getattr(token, "subject", None) or claims.get("sub")
    principal = ("subject", subject) if subject else ("client", client_id)
    # Quoted, the parts stay apart: no client_id can be spelled to equal somebody's subject.
    return f"token:{(issuer, *principal)!r}"


def _bearer(scope: Mapping[str, Any]) -> bytes | None:
    token = bearer_token(scope.get("headers", ()))
    # The prefix keeps an unverified bearer from being spelled like a verified identity, whose
    # bucket it would drain.
    return b"\0bearer\0" + token if token else None


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token of `Authorization: Bearer`; the first field decides, as it does for the SDKs' own
    authentication."""
    scheme, _, token = (header(headers, b"authorization") or b"").strip().partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


class CallerResolver:
    """Turns a request into a `Caller` whose policy the gate has."""

    def __init__(self, gate: Gate, function: CallerFunction | None = None) -> None:
        """Raises `ValueError` where the gate lacks a policy that calls would need."""
        needed = [ANONYMOUS] if function is not None else [ANONYMOUS, AUTHENTICATED]
        for policy in needed:
            if policy not in gate.policies:
                raise ValueError(
                    f"the gate needs a policy named {policy!r}; it has {sorted(gate.policies)}"
                )
        self._per_caller = frozenset(
            name
            for name, rules in gate.policies.items()
            if any(scope in _PER_CALLER for _, scope in rules)
        )
        if ANONYMOUS in self._per_caller:
            raise ValueError(
                f"policy {ANONYMOUS!r} has a limit per caller, and there is no caller to charge"
            )
        self._function = function
        self._has_forwarded = FORWARDED_BEARER in gate.policies

    async def resolve(self, source: Any, scope: Mapping[str, Any] | None) -> Caller:
        """The caller of one request: by the user's function where there is one, else by `scope`."""
        if self._function is None:
            caller = caller_of_scope(scope)
            if caller.policy == FORWARDED_BEARER and not self._has_forwarded:
                return Caller(ANONYMOUS)
            return self._identified(caller)
        answer = self._function(source)
        if inspect.isawaitable(answer):
            answer = await answer
        return self._identified(_as_caller(answer))

    def _identified(self, caller: Caller) -> Caller:
        """`caller`, as far as its identity is one that the gate can take."""
        identity = caller.identity
        if identity is None or (isinstance(identity, str | bytes) and not identity):
            is_nobody = caller.policy in self._per_caller
            return Caller(ANONYMOUS if is_nobody else caller.policy)
        if not isinstance(identity, str):
            return caller
        try:
            identity.encode()
        except UnicodeEncodeError:
            # Half a character is an identity like others: a caller who has one is not free.
            return Caller(caller.policy, identity.encode("utf-8", "surrogatepass"))
        return caller


def _as_caller(answer: Any) -> Caller:
    if isinstance(answer, Caller):
        return answer
    if isinstance(answer, Key) or (isinstance(answer, str | bytes) and answer):
        return Caller(AUTHENTICATED, answer)
    if answer is None or isinstance(answer, str | bytes):
        return Caller(ANONYMOUS)
    raise TypeError(
        f"a caller function answers str, bytes, Key, Caller or None, not {type(answer).__name__}"
    )
