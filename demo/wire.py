"""Raw HTTP: one call, or a batch of them, noted in the caller's line."""

from __future__ import annotations

from typing import Any

import httpx
from table import Line

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": VERSION,
    "mcp-method": "tools/call",
}


def call(tool: str, request_id: int = 1) -> dict[str, Any]:
    arguments = {"text": "hello"} if tool == "echo" else {}
    params = {"name": tool, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


async def post(
    http: httpx.AsyncClient,
    line: Line,
    *,
    token: str | None = None,
    key: str | None = None,
    tool: str = "echo",
    batch: int = 0,
    path: str = "/mcp",
) -> None:
    body = [call(tool, n) for n in range(batch)] or call(tool)
    headers = HEADERS | {"mcp-name": tool}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if key is not None:
        headers["x-api-key"] = key
    response = await http.post(path, json=body, headers=headers)
    if response.status_code == 401:
        outcome = "401"
    elif response.status_code in (429, 503):
        outcome = response.json()["error"]["data"]["reason"]
    elif response.status_code == 200 or (batch and response.status_code == 400):
        # The gate lets the batch through in full, and the SDK turns every batch away with a 400.
        outcome = "admitted"
    else:
        outcome = f"HTTP {response.status_code}"
    wait = response.headers.get("retry-after")
    line.count(outcome, max(1, batch), None if wait is None else float(wait))
