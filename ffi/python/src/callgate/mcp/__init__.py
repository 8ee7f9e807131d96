"""callgate in front of an MCP server: only `tools/call` is metered, caller by caller.

    from callgate.mcp import protect
    app = protect(server.streamable_http_app())   # the limits come from the environment

- `protect` and `ASGIMiddleware`: Streamable HTTP, in front of any MCP server (429 with
  `Retry-After`).
- `APIKeyMiddleware`: says who calls by API keys, and answers 401 without one.
- `SDKMiddleware`: the official `mcp` package, any transport.
- `FastMCPMiddleware`: `fastmcp`, any transport.

Importing this package needs neither SDK; the last two are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate.mcp.api_keys import APIKeyMiddleware, APIKeys
from callgate.mcp.asgi import DEFAULT_MAX_BODY_BYTES, ASGIMiddleware
from callgate.mcp.callers import (
    ANONYMOUS,
    AUTHENTICATED,
    CALLER,
    FORWARDED_BEARER,
    Caller,
    CallerFunction,
    Identity,
    caller_of_scope,
    token_identity,
)
from callgate.mcp.choice import PolicyChoice
from callgate.mcp.env import default_gate, gate_from_env
from callgate.mcp.options import MeterOptions, Observation
from callgate.mcp.protect import protect
from callgate.mcp.refusal import DEFAULT_ERROR_CODE
from callgate.mcp.usage import report_usage, usage

if TYPE_CHECKING:
    from callgate.mcp.fastmcp import FastMCPMiddleware
    from callgate.mcp.sdk import SDKMiddleware

__all__ = [
    "ANONYMOUS",
    "AUTHENTICATED",
    "CALLER",
    "DEFAULT_ERROR_CODE",
    "DEFAULT_MAX_BODY_BYTES",
    "FORWARDED_BEARER",
    "APIKeyMiddleware",
    "APIKeys",
    "ASGIMiddleware",
    "Caller",
    "CallerFunction",
    "FastMCPMiddleware",
    "Identity",
    "MeterOptions",
    "Observation",
    "PolicyChoice",
    "SDKMiddleware",
    "caller_of_scope",
    "default_gate",
    "gate_from_env",
    "protect",
    "report_usage",
    "token_identity",
    "usage",
]


def __getattr__(name: str) -> Any:
    if name == "SDKMiddleware":
        from callgate.mcp.sdk import SDKMiddleware

        return SDKMiddleware
    if name == "FastMCPMiddleware":
        from callgate.mcp.fastmcp import FastMCPMiddleware

        return FastMCPMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
