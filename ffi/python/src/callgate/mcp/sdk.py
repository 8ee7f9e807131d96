"""Middleware for the official `mcp` package (2.x), on every transport, stdio too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from callgate import Gate
from callgate.mcp.call import (
    CLIENT_FAULTS,
    RefuseWith,
    check_refuse_with,
    run_call,
    scope_of_request,
)
from callgate.mcp.charge import expect_handlers
from callgate.mcp.message import METERED_METHOD, entry_of
from callgate.mcp.meter import Meter
from callgate.mcp.options import check_error_code
from callgate.mcp.refusal import DEFAULT_ERROR_CODE, JsonRpcError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from callgate.mcp.options import MeterOptions

_BAD_ARGUMENTS = re.compile(r"[0-9]+ validation errors? for [^\n]*Arguments\n")


class SDKMiddleware:
    """Meters `tools/call` of an `MCPServer`, or of a low-level `Server`.

        MCPServer("name", middleware=[SDKMiddleware()])

    - `gate`: None means the process's gate from the environment (`callgate.mcp.default_gate`).
    - `refuse_with`: `"error"` for a JSON-RPC error, `"result"` for a tool result with `isError:
      true`.
    - `error_code`: the JSON-RPC code of a refusal.
    - `options`: those of all middlewares, see `callgate.mcp.MeterOptions`. A `caller` function gets
      the request's context.

    A call that `ASGIMiddleware` on the same gate has let through is not charged again.
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

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        # Without an id it is a notification, which the SDK drops whatever its method.
        if ctx.method not in self._meter.methods or ctx.request_id is None:
            return await call_next(ctx)
        is_tool_call = ctx.method == METERED_METHOD
        name = ctx.params.get("name") if isinstance(ctx.params, Mapping) else None
        return await run_call(
            self._meter,
            entry=entry_of(ctx.method, ctx.params),
            source=ctx,
            scope=scope_of_request(ctx.request, auth_context_var.get()),
            error_code=self._error_code,
            call=lambda: call_next(ctx),
            refuse=self._refuse_call if is_tool_call else _refuse,
            is_client_fault=_is_client_fault,
            is_client_fault_text=partial(_is_client_fault_text, name),
        )

    def _refuse_call(self, error: JsonRpcError) -> HandlerResult:
        if self._refuse_with == "error":
            return _refuse(error)
        return CallToolResult(content=[TextContent(type="text", text=error.message)], is_error=True)


def _refuse(error: JsonRpcError) -> NoReturn:
    raise MCPError(error.code, error.message, error.data)


def _is_client_fault(error: Exception) -> bool:
    if isinstance(error, MCPError):
        return error.code in CLIENT_FAULTS
    return isinstance(error, ValidationError)


def _is_client_fault_text(tool: Any, text: str) -> bool:
    """`MCPServer` turns unknown tools and bad arguments into results, too.

    What a tool raises itself follows its name as well, so that only what pydantic says of the
    model that the SDK makes of a tool's arguments is taken for theirs.
    """
    if text in (f"Unknown tool: {tool}", f"Unknown tool: {tool!r}"):
        return True
    prefix = f"Error executing tool {tool}: "
    return text.startswith(prefix) and _BAD_ARGUMENTS.match(text, len(prefix)) is not None
