"""Middleware for the official `mcp` package (2.x), on every transport, stdio too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    CallToolResult,
    TextContent,
)
from pydantic import ValidationError

from callgate import Gate
from callgate.mcp.call import RefuseWith, check_refuse_with, run_call, scope_of_request
from callgate.mcp.callers import CallerFunction
from callgate.mcp.message import METERED_METHOD
from callgate.mcp.meter import Clock, Meter, Observation, OnError
from callgate.mcp.refusal import DEFAULT_ERROR_CODE, JsonRpcError

_CLIENT_FAULTS = frozenset({INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND})


class SDKMiddleware:
    """Meters `tools/call` of an `MCPServer`, or of a low-level `Server`.

        MCPServer("name", middleware=[SDKMiddleware()])

    - `gate`: None means the process's gate from the environment (`callgate.mcp.default_gate`).
    - `caller`: `function(context)`, plain or async, that answers who calls; see
      `callgate.mcp.Identity`. By default the SDK's verified access token. On stdio there is none:
      such a caller is `anonymous`.
    - `refuse_with`: `"error"` for a JSON-RPC error, `"result"` for a tool result with `isError:
      true`.
    - `error_code`: the JSON-RPC code of a refusal.
    - `on_error`: what an internal error does to the call, `"admit"` or `"refuse"`. It is counted in
      `internal_errors` either way.
    - `clock`: answers the time in nanoseconds, for tests; None means the engine's own clock.
    - `observe`: called with an `Observation` after each decision.

    A call that `ASGIMiddleware` on the same gate has let through is not charged again.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        *,
        caller: CallerFunction | None = None,
        refuse_with: RefuseWith = "error",
        error_code: int = DEFAULT_ERROR_CODE,
        on_error: OnError = "admit",
        clock: Clock | None = None,
        observe: Callable[[Observation], None] | None = None,
    ) -> None:
        check_refuse_with(refuse_with)
        self._meter = Meter(gate, caller=caller, on_error=on_error, clock=clock, observe=observe)
        self._refuse_with = refuse_with
        self._error_code = error_code

    @property
    def gate(self) -> Gate:
        """The gate that decides."""
        return self._meter.gate

    @property
    def internal_errors(self) -> int:
        """How often the limiter itself has failed."""
        return self._meter.internal_errors

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        # Without an id it is a notification, which the SDK drops whatever its method.
        if ctx.method != METERED_METHOD or ctx.request_id is None:
            return await call_next(ctx)
        name = (ctx.params or {}).get("name")
        return await run_call(
            self._meter,
            tool=name if isinstance(name, str) and name else None,
            source=ctx,
            scope=scope_of_request(ctx.request, auth_context_var.get()),
            error_code=self._error_code,
            call=lambda: call_next(ctx),
            refuse=self._refuse,
            is_client_fault=_is_client_fault,
        )

    def _refuse(self, error: JsonRpcError) -> HandlerResult:
        if self._refuse_with == "error":
            raise MCPError(error.code, error.message, error.data)
        return CallToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)


def _is_client_fault(error: Exception) -> bool:
    if isinstance(error, MCPError):
        return error.code in _CLIENT_FAULTS
    return isinstance(error, ValidationError)
