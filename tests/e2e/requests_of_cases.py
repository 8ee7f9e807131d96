"""What a step of `cases.jsonl` sends, as arguments of httpx, and what its answer is held against.

README.md says what the fields mean.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
from servers import NEWEST, Server


def meta_of(server: Server) -> dict[str, Any]:
    """The protocol's `_meta`, which came with its newest version."""
    if server.version != NEWEST:
        return {}
    return {
        "io.modelcontextprotocol/protocolVersion": server.version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def message_of(send: dict[str, Any], meta: dict[str, Any]) -> tuple[Any, dict[str, str | None]]:
    """The JSON-RPC message that a step sends, and the header fields that name its method."""
    if "call" in send or "batch" in send:
        text = "x" * send.get("padding_bytes", 0)
        tool = send.get("tool", "echo")
        arguments = {"text": text} if tool == "echo" else {}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        call = {"jsonrpc": "2.0", "id": send.get("call"), "method": "tools/call", "params": params}
        batch = [{**call, "id": n} for n in range(send.get("batch", 0))]
        return batch or call, {"mcp-method": "tools/call", "mcp-name": tool}
    if "initialize" in send:
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        return message, {"mcp-protocol-version": None}
    method = send.get("method") or send["notification"]
    message = {"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}}
    return message | ({"id": 1} if "method" in send else {}), {"mcp-method": method}


def request_of(send: dict[str, Any], server: Server, number: int = 0) -> dict[str, Any]:
    """The arguments of `httpx.AsyncClient.request` for the repetition of that number."""
    headers: dict[str, str | None] = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": server.version,
    }
    content = b""
    meta = {} if send.get("bare") else meta_of(server)
    if "text" in send:
        text = send["text"].replace("%META%", json.dumps(meta))
        content = text.encode(send.get("encoding", "utf-8"))
        headers |= {"mcp-method": "tools/call", "mcp-name": "echo"}
    elif "http_method" not in send:
        message, named = message_of(send, meta)
        content = json.dumps(message).encode()
        headers |= named
    if send.get("bare"):
        headers |= dict.fromkeys(("mcp-protocol-version", "mcp-method", "mcp-name"))
    if "token" in send:
        headers["authorization"] = "Bearer " + send["token"]
    if "key" in send:
        headers["x-api-key"] = send["key"]
    headers |= send.get("headers", {})
    size = send.get("chunk_bytes")
    return {
        "method": send.get("http_method", "POST"),
        "url": send.get("path", "/mcp"),
        "headers": {
            name: value.replace("%N%", str(number))
            for name, value in headers.items()
            if value is not None
        },
        "content": _chunks(content, size) if size else content,
    }


async def _chunks(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def is_part(part: Any, whole: Any) -> bool:
    """Whether `whole` has everything that `part` has; 7 is not "7", and 1 is not true."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and is_part(value, whole[name]) for name, value in part.items()
        )
    return type(part) is type(whole) and part == whole


def check(response: httpx.Response, expect: dict[str, Any], server: Server) -> None:
    """Fails where a response is not what was expected of this server."""
    status = expect.get("status_of", {}).get(server.name, expect["status"])
    assert response.status_code == status, response.text
    retry_after = response.headers.get("retry-after", "")
    if "retry_after_s" in expect:
        least, most = expect["retry_after_s"]
        assert least <= int(retry_after) <= most
    for name, value in expect.get("headers", {}).items():
        wanted = value and value.replace("%RETRY_AFTER%", retry_after)
        assert response.headers.get(name) == wanted, name
    if "json" in expect:
        assert is_part(expect["json"], response.json()), response.text
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
    for name in expect.get("json_absent", ()):
        assert name not in response.json()
