"""A server on stdio, as a process of its own: `mcp_stdio_server.py mcp|fastmcp error|result`."""

from __future__ import annotations

import sys
from typing import Any

from callgate.mcp import FastMCPMiddleware, SDKMiddleware
from mcp_support import make_gate


def build(sdk: str, refuse_with: Any) -> Any:
    gate = make_gate(anonymous=2)
    if sdk == "mcp":
        from mcp.server.mcpserver import MCPServer

        server = MCPServer("test", middleware=[SDKMiddleware(gate, refuse_with=refuse_with)])
        server.tool()(work)
        return server
    from fastmcp import FastMCP

    fast: FastMCP[Any] = FastMCP(
        "test", middleware=[FastMCPMiddleware(gate, refuse_with=refuse_with)]
    )
    fast.tool(work)
    return fast


def work() -> str:
    return "done"


if __name__ == "__main__":
    build(sys.argv[1], sys.argv[2]).run(transport="stdio")
