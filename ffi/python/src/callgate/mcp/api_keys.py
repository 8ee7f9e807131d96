"""API keys: who calls, where a server has nothing better to tell it by.

    keys = APIKeys({"k-3f9c…": "ann", "k-71aa…": "ben"})     # or from MCP_API_KEYS: from_env()
    app = APIKeyMiddleware(ASGIMiddleware(app, gate), keys)   # or protect(app, gate, api_keys=keys)

A key is taken from `Authorization: Bearer KEY`, from `X-API-Key: KEY` or from `?key=KEY`: the first
of these that is there decides. It is compared with all known keys in constant time, as a keyed
digest: keys themselves are kept nowhere, logged nowhere, and never reach the gate's table, which
knows callers by their user. Several keys may have one user, who has one allowance.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from callgate import Decision, Gate, RateLimit
from callgate.mcp.asgi_types import ASGIApp, Receive, Scope, Send
from callgate.mcp.body import header
from callgate.mcp.callers import AUTHENTICATED, CALLER, Caller, bearer_token
from callgate.mcp.refusal import (
    DEFAULT_ERROR_CODE,
    HttpResponse,
    JsonRpcError,
    http_error,
    retry_after_ms,
    retry_after_s,
    send_response,
)

logger = logging.getLogger("callgate.mcp")

KEYS: Final = "MCP_API_KEYS"
ENABLED: Final = "MCP_AUTH_ENABLED"

DEFAULT_FAILURES: Final = RateLimit(10, per="1m", burst=20)
"""How many wrong keys are answered with a 401, by all clients together."""

_UNAUTHORIZED: Final = -31001
_PLACES: Final = "'Authorization: Bearer KEY', 'X-API-Key: KEY' or '?key=KEY'"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


class APIKeys:
    """The known keys, and the limit on attempts with unknown ones.

    - `users`: the user of each key. None makes every key unknown.
    - `failures`: the limit on failed attempts. It is one for all clients, so that nobody has more
      attempts by changing keys or addresses; over it they get 429 instead of 401. A known key
      always passes, or else anybody could lock everybody out.

    Raises `ValueError` for an empty key or user, and `TypeError` for what is no str.
    """

    def __init__(self, users: Mapping[str, str], *, failures: RateLimit = DEFAULT_FAILURES) -> None:
        self._secret = secrets.token_bytes(32)
        self._users: list[tuple[bytes, str]] = []
        if not isinstance(users, Mapping):
            raise TypeError(f"users must be a mapping of keys, not {type(users).__name__}")
        for key, user in users.items():
            # The key is never quoted.
            if not isinstance(key, str):
                raise TypeError(f"users: an API key must be a str, not {type(key).__name__}")
            if not isinstance(user, str):
                raise TypeError(f"users: a key's user must be a str, not {type(user).__name__}")
            if not key or not user:
                raise ValueError("an API key and its user can't be empty")
            self._users.append((self._digest(_bytes_of(key)), user))
        self._failures = Gate(
            limits={"failed attempts": failures},
            policies={"failed attempts": [("failed attempts", "shared")]},
            capacity=1,
        )

    @classmethod
    def parse(cls, text: str, *, failures: RateLimit = DEFAULT_FAILURES) -> APIKeys:
        """The keys of `key:user,key2:user2`; what is no such pair is left out, with a warning.

        A key ends at the first colon. Blanks around keys and users do not count.
        """
        users: dict[str, str] = {}
        for number, entry in enumerate(text.split(","), start=1):
            key, _, user = (part.strip() for part in entry.partition(":"))
            # Neither the key nor the entry is ever quoted: logs are no place for secrets.
            if key in users and user:
                logger.warning("%s: the key of entry %d is there twice; left out", KEYS, number)
            elif key and user:
                users[key] = user
            elif entry.strip():
                logger.warning("%s: entry %d is not key:user; it is left out", KEYS, number)
        return cls(users, failures=failures)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> APIKeys | None:
        """The keys of `MCP_API_KEYS`; None where no key is to be demanded.

        `MCP_AUTH_ENABLED` says whether one is: true or false (or 1 and 0, yes and no, on and off).
        Unset, keys are demanded where there are any. With it, and without any valid key, nobody
        gets in.
        """
        env = os.environ if environ is None else environ
        text = env.get(KEYS, "")
        if not _is_enabled(env, bool(text.strip())):
            return None
        keys = cls.parse(text)
        if not keys._users:
            logger.warning("%s has no valid key: every request is refused", KEYS)
        logger.info("API keys are demanded; %d are known", len(keys._users))
        return keys

    def user_of(self, key: bytes) -> str | None:
        """Whose key it is; None where it is nobody's. Takes the same time for every key."""
        digest = self._digest(key)
        found: str | None = None
        for known, user in self._users:
            if hmac.compare_digest(known, digest):
                found = user
        return found

    def failed(self) -> Decision:
        """Count an attempt with an unknown key: refused, where there were too many."""
        return self._failures.try_admit("failed attempts")

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()

    def __repr__(self) -> str:
        return f"<callgate.mcp.APIKeys of {len(self._users)} keys>"


class APIKeyMiddleware:
    """Demands an API key of every HTTP request and websocket: 401 without a known one.

    What it finds out is what the middlewares inside go by: the user is charged under the policy
    `authenticated`. The key is taken out of the query string, so that neither the application nor
    the server's access log gets to see it there.
    """

    def __init__(self, app: ASGIApp, keys: APIKeys) -> None:
        if not isinstance(keys, APIKeys):
            raise TypeError(f"keys must be APIKeys, not {type(keys).__name__}")
        self.app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        key = _presented_key(scope)
        user = None if key is None else self._keys.user_of(key)
        if user is not None:
            scope[CALLER] = Caller(AUTHENTICATED, user)
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send_response(send, self._refusal(is_missing=key is None))

    def _refusal(self, *, is_missing: bool) -> HttpResponse:
        if is_missing:
            return _unauthorized("An API key is needed", b'Bearer realm="mcp"')
        try:
            decision = self._keys.failed()
        except Exception as error:
            logger.error("failed attempts can't be counted: %s", type(error).__name__)
        else:
            if not decision.admitted:
                return _too_many(decision)
        challenge = b'Bearer realm="mcp", error="invalid_token"'
        return _unauthorized("The API key is not known", challenge)


def _bytes_of(key: str) -> bytes:
    """As clients send it: in the environment, what is not UTF-8 stands there as halves of
    characters."""
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Raised anew, since its text and its fields hold the key.
        raise ValueError("an API key can't be encoded as UTF-8") from None


def _presented_key(scope: Scope) -> bytes | None:
    headers = scope["headers"]
    in_query, scope["query_string"] = _without_key(scope.get("query_string", b""))
    in_header = (header(headers, b"x-api-key") or b"").strip()
    return bearer_token(headers) or in_header or in_query or None


def _without_key(query: bytes) -> tuple[bytes, bytes]:
    """The value of `key` in a query string (the first, where there are more), and the rest."""
    found = b""
    rest: list[bytes] = []
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if unquote_to_bytes(name) != b"key":
            rest.append(pair)
        elif not found:
            found = unquote_to_bytes(value)
    return found, b"&".join(rest)


def _unauthorized(what: str, challenge: bytes) -> HttpResponse:
    message = f"{what}: send it as {_PLACES}."
    headers = [(b"www-authenticate", challenge)]
    return http_error(401, JsonRpcError(_UNAUTHORIZED, message), headers=headers)


def _too_many(decision: Decision) -> HttpResponse:
    data = {
        "reason": decision.reason,
        "limit": decision.by,
        "retryAfterMs": retry_after_ms(decision),
    }
    wait_s = retry_after_s(decision)
    headers = [] if wait_s is None else [(b"retry-after", b"%d" % wait_s)]
    message = "Too many requests came with an unknown API key. Try again later."
    return http_error(429, JsonRpcError(DEFAULT_ERROR_CODE, message, data), headers=headers)


def _is_enabled(env: Mapping[str, str], has_keys: bool) -> bool:
    text = env.get(ENABLED)
    if text is None:
        return has_keys
    word = text.strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    logger.warning(
        "%s=%r is neither true nor false: using the default, %s", ENABLED, text, has_keys
    )
    return has_keys
