"""Middleware for `fastmcp` (4.x), on every transport, stdio too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from fastmcp.exceptions import DisabledError, NotFoundError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, TextContent

from callgate import Gate
from callgate.mcp.call import (
    CLIENT_FAULTS,
    RefuseWith,
    check_refuse_with,
    run_call,
    scope_of_request,
)
from callgate.mcp.charge import expect_handlers
from callgate.mcp.message import METERED_METHOD, Entry, tool_name
from callgate.mcp.meter import Meter
from callgate.mcp.options import check_error_code
from callgate.mcp.refusal import DEFAULT_ERROR_CODE, JsonRpcError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from callgate.mcp.options import MeterOptions

Params = TypeVar("Params")
Result = TypeVar("Result")


class FastMCPMiddleware(Middleware):
    """Meters `tools/call` of a `FastMCP` server.

        FastMCP("name", middleware=[FastMCPMiddleware()])

    - `gate`: None means the process's gate from the environment (`callgate.mcp.default_gate`).
    - `refuse_with`: `"error"` for a JSON-RPC error, `"result"` for a tool result with `isError:
      true`.
    - `error_code`: the JSON-RPC code of a refusal.
    - `options`: those of all middlewares, see `callgate.mcp.MeterOptions`. A `caller` function gets
      the request's context.

    A call that `ASGIMiddleware` on the same gate has let through is not charged again, and neither
    are the calls that a tool makes on its own or a mounted server in the course of one.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        *,
        refuse_with: RefuseWith = "error",
        error_code: int = DEFAULT_ERROR_CODE,
        **options: Unpack[MeterOptions],
    ) -> None:
        check_refuse_with(refuse_with)
        self._meter = Meter(gate, **options)
        expect_handlers(self._meter.gate)
        self._refuse_with = refuse_with
        self._error_code = check_error_code(error_code)

    @property
    def gate(self) -> Gate:
        """The gate that decides."""
        return self._meter.gate

    @property
    def internal_errors(self) -> int:
        """How often the limiter itself has failed."""
        return self._meter.internal_errors

    async def on_request(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        method = context.method or ""
        if method == METERED_METHOD or method not in self._meter.methods:
            return await call_next(context)
        return await self._run(Entry(method=method), context, call_next, _refuse)

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        params = context.message
        is_continuation = params.input_responses is not None
        entry = Entry(tool_name(params.name), is_continuation=is_continuation)
        return await self._run(entry, context, call_next, self._refuse_call)

    async def _run(
        self,
        entry: Entry,
        context: MiddlewareContext[Params],
        call_next: CallNext[Params, Result],
        refuse: Callable[[JsonRpcError], Result],
    ) -> Result:
        request = getattr(context.fastmcp_context, "request_context", None)
        return await run_call(
            self._meter,
            entry=entry,
            source=context,
            scope=scope_of_request(getattr(request, "request", None), auth_context_var.get()),
            error_code=self._error_code,
            call=lambda: call_next(context),
            refuse=refuse,
            is_client_fault=_is_client_fault,
        )

    def _refuse_call(self, error: JsonRpcError) -> ToolResult:
        if self._refuse_with == "error":
            _refuse(error)
        return ToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)


def _refuse(error: JsonRpcError) -> NoReturn:
    raise MCPError(error.code, error.message, error.data)


def _is_client_fault(error: Exception) -> bool:
    if isinstance(error, MCPError):
        return error.code in CLIENT_FAULTS
    return isinstance(error, (DisabledError, NotFoundError, ValidationError))
