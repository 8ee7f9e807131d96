"""One refusal, three renderings: an HTTP response, a JSON-RPC error, a sentence for a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from callgate import RateLimit

if TYPE_CHECKING:
    from callgate import Decision
    from callgate.mcp.asgi_types import Send
    from callgate.mcp.message import RequestId

DEFAULT_ERROR_CODE: Final = -31004
"""JSON-RPC code of a refusal: outside the ranges that JSON-RPC and MCP reserve."""

INTERNAL_ERROR: Final = -32603

_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_MAX_FIELD_INTEGER: Final = 999_999_999_999_999
"""The largest integer that HTTP structured fields can carry (RFC 9651, section 3.3.1)."""

_UNAVAILABLE_REASONS: Final = frozenset({"concurrency", "breaker_open", "unseeded"})
"""Refusals that are about the server, not about this caller's own use: 503 instead of 429."""


_SENTENCES: Final = {
    "rate": "Too many tool calls: the limit {by!r} is reached.",
    "concurrency": "The server is busy: it runs {limit} tool calls at once, and no more.",
    "breaker_open": "The server is overloaded and takes no tool calls right now.",
    "quota": "The allowance {by!r} is used up.",
    "unseeded": "The server does not know yet what is left of the allowance {by!r}.",
    "table_full": "The server is keeping track of as many callers as it can.",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete HTTP response: status, header fields as ASGI wants them, body."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class JsonRpcError:
    """The `error` member of a JSON-RPC response."""

    code: int
    message: str
    data: dict[str, Any] | None = None


def http_refusal(
    decision: Decision,
    *,
    cost: int,
    request_id: RequestId | None,
    policy_limits: Mapping[str, Any],
    error_code: int = DEFAULT_ERROR_CODE,
) -> HttpResponse:
    """The HTTP response for a refused call or batch of `cost` calls.

    `policy_limits` are the limits of the policy that was applied, by name and in order. The id is
    echoed with its type, and omitted where there is none to echo.
    """
    status = 503 if decision.reason in _UNAVAILABLE_REASONS else 429
    headers: list[tuple[bytes, bytes]] = []
    wait_s = retry_after_s(decision)
    if wait_s is not None:
        headers.append((b"retry-after", b"%d" % wait_s))
    headers += _rate_limit_fields(decision, policy_limits, wait_s)
    envelope: dict[str, Any] = {"jsonrpc": "2.0"}
    if request_id is not None:
        envelope["id"] = request_id
    envelope["error"] = _error_member(jsonrpc_refusal(decision, cost=cost, error_code=error_code))
    return _json_response(status, envelope, headers)


def http_error(
    status: int,
    error: JsonRpcError,
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    request_id: RequestId | None = None,
) -> HttpResponse:
    """The HTTP response for a message that the gate was never asked about: unreadable, too large, …

    Without an id it says `"id": null`, as JSON-RPC 2.0 wants of a message whose id could not be
    read.
    """
    envelope = {"jsonrpc": "2.0", "id": request_id, "error": _error_member(error)}
    return _json_response(status, envelope, list(headers))


def jsonrpc_refusal(
    decision: Decision, *, cost: int = 1, error_code: int = DEFAULT_ERROR_CODE
) -> JsonRpcError:
    """The JSON-RPC error of a refusal. `data.retryAfterMs` is null where no wait is known."""
    data = {
        "reason": decision.reason,
        "limit": decision.by,
        "retryAfterMs": retry_after_ms(decision),
    }
    return JsonRpcError(error_code, sentence(decision, cost=cost), data)


UNAVAILABLE: Final = JsonRpcError(
    INTERNAL_ERROR, "The call limiter failed, and this server refuses calls then."
)
"""What is answered after an internal error where `on_error="refuse"`."""


def sentence(decision: Decision, *, cost: int = 1) -> str:
    """One or two sentences that a model can pass on or act upon. They never name the caller."""
    if decision.reason == "never" and cost <= decision.limit:
        return (
            f"This request sets aside more of the allowance {decision.by!r} than it ever holds, "
            f"{decision.limit}. No retry can help."
        )
    if decision.reason == "never":
        return (
            f"This request holds {cost} tool calls, and the limit {decision.by!r} never lets more "
            f"than {decision.limit} through at once. Send fewer calls at a time."
        )
    wait_ms = retry_after_ms(decision)
    wait = f"Try again in {_spoken(wait_ms)}." if wait_ms is not None else "Try again in a moment."
    what = _SENTENCES.get(decision.reason or "", _SENTENCES["rate"])
    return f"{what.format(by=decision.by, limit=decision.limit)} {wait}"


def retry_after_ms(decision: Decision) -> int | None:
    """Milliseconds until a retry can be admitted, rounded up; None where no time is known."""
    if decision.reason == "never" or decision.retry_after_ns <= 0:
        return None
    return -(-decision.retry_after_ns // _NS_PER_MS)


def retry_after_s(decision: Decision) -> int | None:
    """`Retry-After`: whole seconds, rounded up, at least 1; None where no retry can succeed."""
    if decision.reason == "never":
        return None
    return min(max(1, -(-decision.retry_after_ns // _NS_PER_S)), _MAX_FIELD_INTEGER)


def _rate_limit_fields(
    decision: Decision, policy_limits: Mapping[str, Any], wait_s: int | None
) -> list[tuple[bytes, bytes]]:
    """`RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).

    The policy field lists the rate limits of the policy: `q` is the burst, and `w` the seconds in
    which an empty bucket fills, since that many calls in that many seconds is what the limit
    amounts to.
    """
    fields: list[tuple[bytes, bytes]] = []
    if isinstance(policy_limits.get(decision.by or ""), RateLimit):
        reset = "" if wait_s is None else f";t={wait_s}"
        remaining = min(max(0, decision.remaining), _MAX_FIELD_INTEGER)
        fields.append(
            (b"ratelimit", f"{_field_string(decision.by)};r={remaining}{reset}".encode("ascii"))
        )
    items = [
        f"{_field_string(name)};q={min(limit.burst, _MAX_FIELD_INTEGER)};w={_window_s(limit)}"
        for name, limit in policy_limits.items()
        if isinstance(limit, RateLimit)
    ]
    if items:
        fields.append((b"ratelimit-policy", ", ".join(items).encode("ascii")))
    return fields


def _window_s(limit: RateLimit) -> int:
    fill_ns = -(-limit.burst * limit.period_ns // limit.count)
    return min(max(1, -(-fill_ns // _NS_PER_S)), _MAX_FIELD_INTEGER)


def _field_string(name: str | None) -> str:
    """`name` as a structured-field string: printable ASCII, the rest replaced."""
    printable = "".join(c if " " <= c <= "~" else "?" for c in name or "")
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _spoken(wait_ms: int) -> str:
    if wait_ms < 1_000:
        return f"{wait_ms} milliseconds"
    if wait_ms < 120_000:
        return f"{-(-wait_ms // 100) / 10:.1f} seconds"
    minutes = -(-wait_ms // 60_000)
    return f"{minutes} minutes" if minutes < 120 else f"{-(-minutes // 60)} hours"


def _error_member(error: JsonRpcError) -> dict[str, Any]:
    member: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        member["data"] = error.data
    return member


def _json_response(
    status: int, envelope: dict[str, Any], headers: list[tuple[bytes, bytes]]
) -> HttpResponse:
    body = json.dumps(envelope, separators=(",", ":"), allow_nan=False).encode("ascii")
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        # A refusal is about this instant and this caller: no cache may answer the next call with
        # it.
        (b"cache-control", b"no-store"),
    ]
    return HttpResponse(status, tuple(fixed + headers), body)


async def send_response(send: Send, response: HttpResponse) -> None:
    """Answer an ASGI request with it."""
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body, "more_body": False})
