"""Middleware for `fastmcp` (4.x), on every transport, stdio too."""

from __future__ import annotations

from collections.abc import Callable

from fastmcp.exceptions import DisabledError, NotFoundError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, TextContent

from callgate import Gate
from callgate.mcp.call import RefuseWith, check_refuse_with, run_call, scope_of_request
from callgate.mcp.callers import CallerFunction
from callgate.mcp.meter import Clock, Meter, Observation, OnError
from callgate.mcp.refusal import DEFAULT_ERROR_CODE, JsonRpcError


class FastMCPMiddleware(Middleware):
    """Meters `tools/call` of a `FastMCP` server.

        FastMCP("name", middleware=[FastMCPMiddleware()])

    - `gate`: None means the process's gate from the environment (`callgate.mcp.default_gate`).
    - `caller`: `function(context)`, plain or async, that answers who calls; see
      `callgate.mcp.Identity`. By default the verified access token. On stdio there is none: such a
      caller is `anonymous`.
    - `refuse_with`: `"error"` for a JSON-RPC error, `"result"` for a tool result with `isError:
      true`.
    - `error_code`: the JSON-RPC code of a refusal.
    - `on_error`: what an internal error does to the call, `"admit"` or `"refuse"`. It is counted in
      `internal_errors` either way.
    - `clock`: answers the time in nanoseconds, for tests; None means the engine's own clock.
    - `observe`: called with an `Observation` after each decision.

    A call that `ASGIMiddleware` on the same gate has let through is not charged again, and neither
    are the calls that a tool makes on its own or a mounted server in the course of one.
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

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        request_context = getattr(context.fastmcp_context, "request_context", None)
        return await run_call(
            self._meter,
            tool=context.message.name or None,
            source=context,
            scope=scope_of_request(
                getattr(request_context, "request", None), auth_context_var.get()
            ),
            error_code=self._error_code,
            call=lambda: call_next(context),
            refuse=self._refuse,
            is_client_fault=_is_client_fault,
        )

    def _refuse(self, error: JsonRpcError) -> ToolResult:
        if self._refuse_with == "error":
            raise MCPError(error.code, error.message, error.data)
        return ToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)


def _is_client_fault(error: Exception) -> bool:
    return isinstance(error, (DisabledError, NotFoundError, ValidationError))
