"""The README's programs work as they are written there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[3] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_engine_example_decides() -> None:
    ran: list[str] = []

    def run_the_tool() -> tuple[str, int]:
        ran.append("tool")
        return "answer", 1068

    names: dict[str, Any] = {"run_the_tool": run_the_tool}
    exec(compile(blocks()[1], "README.md", "exec"), names)
    decision, gate = names["decision"], names["gate"]
    assert (decision.admitted, decision.remaining, decision.retry_after_ns) == (True, 199, 0)
    assert ran == ["tool"]
    assert gate.guards("server").in_flight == 0
    [_, tokens, _] = gate.peek("authenticated", caller="user:1001", cost=0)
    assert tokens.remaining == 50_000 - 1068


def test_the_mcp_example_protects_a_server() -> None:
    from mcp.server import MCPServer

    from callgate.mcp import ASGIMiddleware

    names: dict[str, Any] = {"server": MCPServer("example")}
    exec(compile(blocks()[0], "README.md", "exec"), names)
    endpoints = [getattr(route, "app", None) for route in names["app"].routes]
    assert any(isinstance(endpoint, ASGIMiddleware) for endpoint in endpoints)


def test_a_refusal_reads_as_the_readme_says() -> None:
    from callgate import Gate, RateLimit, Refused

    gate = Gate(
        limits={"caller": RateLimit(30, per="1s", burst=60)},
        policies={"authenticated": [("caller", "caller")]},
    )
    gate.try_admit("authenticated", caller="user:1001", cost=60, now_ns=0)
    try:
        gate.admit("authenticated", caller="user:1001", now_ns=0)
    except Refused as refused:
        assert str(refused) in README.read_text(encoding="utf-8")
    else:
        raise AssertionError("the bucket is drained")
