"""ASGI middleware for Streamable HTTP: refuses tool calls before the MCP server sees them.

A pure ASGI class without a framework. POST bodies are read and played back; everything else, and
every response, passes as it is, streams included.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from callgate import ConfigError, Gate
from callgate.integers import integer
from callgate.mcp import message as rpc
from callgate.mcp.asgi_types import ASGIApp, Message, Receive, Scope, Send
from callgate.mcp.beside import run_beside
from callgate.mcp.body import (
    BodyTooLarge,
    ClientGone,
    Replay,
    is_encoded,
    may_be_json,
    read_body,
)
from callgate.mcp.charge import RECEIPTS, Receipt
from callgate.mcp.meter import Meter, Verdict
from callgate.mcp.options import check_error_code
from callgate.mcp.refusal import (
    DEFAULT_ERROR_CODE,
    UNAVAILABLE,
    HttpResponse,
    JsonRpcError,
    http_error,
    http_refusal,
    send_response,
)
from callgate.mcp.usage import ResponseReader
from callgate.vocabulary import Outcome

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from callgate.mcp.options import MeterOptions

DEFAULT_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""4 MiB: what the MCP SDKs themselves take at most."""


class ASGIMiddleware:
    """Meters `tools/call` in front of an MCP server's ASGI application.

    - `gate`: None means the process's gate from the environment (`callgate.mcp.default_gate`). It
      needs a policy `anonymous`, and `authenticated` unless `caller` is given; `forwarded-bearer`
      is used where it exists.
    - `max_body_bytes`: larger bodies are refused with 413. At least 1.
    - `error_code`: the JSON-RPC code of a refusal.
    - `options`: those of all middlewares, see `callgate.mcp.MeterOptions`. A `caller` function gets
      the ASGI scope. Without one this belongs inside the authentication, which
      `callgate.mcp.protect` sees to.

    An admitted call is settled when the application returns: as `failure` where it raised, answered
    5xx, or never completed a response; else as `success`. It is settled as `abandoned` when the
    client leaves before it is answered, whatever the application does then. Where a middleware of
    the SDK's on the same gate is around the handler, its places are free only once the handler has
    ended as well.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate | None = None,
        *,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        error_code: int = DEFAULT_ERROR_CODE,
        **options: Unpack[MeterOptions],
    ) -> None:
        if integer("max_body_bytes", max_body_bytes) < 1:
            raise ConfigError(
                f"max_body_bytes must be at least 1, not {max_body_bytes}", "max_body_bytes"
            )
        self.app = app
        self._meter = Meter(gate, **options)
        self._max_body_bytes = max_body_bytes
        self._error_code = check_error_code(error_code)

    @property
    def gate(self) -> Gate:
        """The gate that decides."""
        return self._meter.gate

    @property
    def internal_errors(self) -> int:
        """How often the limiter itself has failed."""
        return self._meter.internal_errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"].upper() != "POST":
            await self.app(scope, receive, send)
            return
        try:
            body = await read_body(receive, scope["headers"], self._max_body_bytes)
        except ClientGone:
            return
        except BodyTooLarge:
            await send_response(send, _too_large(self._max_body_bytes))
            return
        started_ns = time.perf_counter_ns()
        calls = self._read_calls(scope, body)
        spent_ns = time.perf_counter_ns() - started_ns
        replay = Replay(body, receive)
        if isinstance(calls, HttpResponse):
            await send_response(send, calls)
        elif calls is None or self._is_charged_outside(scope):
            await self.app(scope, replay, send)
        else:
            verdict = await self._meter.decide(calls.entries, scope, scope, spent_ns=spent_ns)
            if verdict.refused:
                await send_response(send, self._refusal(verdict, calls))
            else:
                await self._run(verdict, calls, scope, replay, send)

    def _read_calls(self, scope: Scope, body: bytes) -> rpc.ToolCalls | HttpResponse | None:
        """The calls in `body`, or what to answer instead of running it.

        None where there are no calls, and where no MCP server would read this body as JSON.
        """
        try:
            is_json = may_be_json(scope["headers"])
            if is_json and is_encoded(scope["headers"]):
                # The SDKs do not decode, but something on the way may: nobody can say what runs.
                return _UNSUPPORTED_CODING
            try:
                return rpc.tool_calls(rpc.parse(body), self._meter.methods)
            except rpc.UnreadableMessage as error:
                return http_error(400, JsonRpcError(error.code, error.message)) if is_json else None
        except Exception as error:
            return http_error(503, UNAVAILABLE) if self._meter.failed(error).refused else None

    def _is_charged_outside(self, scope: Scope) -> bool:
        return any(receipt.gate is self.gate for receipt in scope.get(RECEIPTS, ()))

    def _refusal(self, verdict: Verdict, calls: rpc.ToolCalls) -> HttpResponse:
        if verdict.decision is None:
            return http_error(503, UNAVAILABLE, request_id=calls.request_id)
        return http_refusal(
            verdict.decision,
            cost=verdict.cost,
            request_id=calls.request_id,
            policy_limits=self._meter.policy_limits(verdict.policy),
            error_code=self._error_code,
        )

    async def _run(
        self, verdict: Verdict, calls: rpc.ToolCalls, scope: Scope, replay: Replay, send: Send
    ) -> None:
        usage = verdict.hold.charge.usage
        receipt = Receipt(self.gate, calls.cost, verdict.hold.charge)
        # Noted in the scope itself, not in a copy: what routers write there for outer middleware to
        # read (the route, the endpoint) must arrive there.
        scope[RECEIPTS] = (*scope.get(RECEIPTS, ()), receipt)
        watch = _ResponseWatch(send, self._meter)

        def let_go(outcome: Outcome, *, is_to_come: bool) -> None:
            if watch.units is not None:
                usage.state_all(watch.units)
            settle = partial(verdict.settle, outcome)
            # A notification has no handler.
            has_handler = is_to_come and calls.request_id is not None
            if not (has_handler and receipt.hand_over(settle)):
                settle()

        def on_gone() -> None:
            # Servers say so after every response, too.
            if not watch.is_ending:
                let_go("abandoned", is_to_come=True)

        outcome: Outcome = "failure"
        try:
            with usage.current():
                await run_beside(
                    partial(self.app, scope, replay, watch), partial(replay.watch, on_gone)
                )
            outcome = watch.outcome(replay.client_gone)
        except OSError:
            # What servers raise out of `send` once the client has gone, and what an application may
            # raise of its own accord.
            outcome = "abandoned" if watch.has_broken or replay.client_gone else "failure"
            raise
        except Exception:
            outcome = "abandoned" if replay.client_gone and not watch.is_complete else "failure"
            raise
        except BaseException:
            outcome = "abandoned"
            raise
        finally:
            # 202 says that the call runs later: on the older transport its answer goes elsewhere.
            let_go(outcome, is_to_come=watch.status == 202)


_UNSUPPORTED_CODING: Final = http_error(
    415,
    JsonRpcError(rpc.INVALID_REQUEST, "Invalid request: send the body without a content coding"),
    headers=[(b"accept-encoding", b"identity")],
)


class _ResponseWatch:
    """A `send` that passes everything on at once, and remembers how far the response came."""

    def __init__(self, send: Send, meter: Meter) -> None:
        self._send = send
        self._meter = meter
        self._reader = None if meter.usage_meta is None else ResponseReader(meter.usage_meta)
        self.status: int | None = None
        self.is_ending = False
        self.is_complete = False
        self.has_broken = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        self.is_ending = self.is_ending or is_last
        self._read(message)
        try:
            await self._send(message)
        except OSError:
            self.has_broken = True
            raise
        self.is_complete = self.is_complete or is_last

    def _read(self, message: Message) -> None:
        if self._reader is not None:
            try:
                self._reader.read(message)
            except Exception as error:
                self._reader = None
                self._meter.failed(error)

    @property
    def units(self) -> int | None:
        """What the results in the response say they have used."""
        return None if self._reader is None else self._reader.units

    def outcome(self, client_gone: bool) -> Outcome:
        if not self.is_complete:
            return "abandoned" if client_gone else "failure"
        return "failure" if self.status is None or self.status >= 500 else "success"


def _too_large(max_bytes: int) -> HttpResponse:
    message = f"Invalid request: the body is larger than {max_bytes} bytes"
    return http_error(413, JsonRpcError(rpc.INVALID_REQUEST, message))
