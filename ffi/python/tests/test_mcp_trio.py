"""The ASGI middleware in an event loop of trio."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from callgate import Gate, Quota, RateLimit, Seeder
from callgate.mcp import ASGIMiddleware
from mcp_asgi_support import JSON, App, respond
from mcp_support import SettlementGate, call_message, make_gate

HTTP = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}


def seeded_gate() -> Gate:
    return Gate(
        limits={"tokens": Quota(100, must_seed=True), "shared": RateLimit(1_000)},
        policies={"authenticated": [("tokens", "caller")], "anonymous": [("shared", "shared")]},
        capacity=100,
    )


class Connection:
    """A client's end of one request."""

    def __init__(self) -> None:
        self.gone = trio.Event()
        self.sent: list[Any] = []
        self._body: bytes | None = json.dumps(call_message()).encode()

    async def receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


class Call:
    """One call, answered by `answer(receive, send, connection)`."""

    def __init__(self, answer: Callable[..., Any], gate: Any = None, **options: Any) -> None:
        self.connection = Connection()
        self.gate: Any = gate or SettlementGate(make_gate())
        self.guard = ASGIMiddleware(
            App(lambda receive, send: answer(receive, send, self.connection)), self.gate, **options
        )

    async def run(self) -> None:
        await self.guard(dict(HTTP), self.connection.receive, self.connection.send)


def test_a_call_that_is_answered_is_a_success() -> None:
    async def answer(_receive: Any, send: Any, _connection: Connection) -> None:
        await trio.sleep(0.01)
        await respond(send, 200)

    call = Call(answer)
    trio.run(call.run)
    assert (call.connection.sent[0]["status"], call.gate.outcomes) == (200, ["success"])


def test_a_client_that_leaves_has_abandoned_its_call_though_the_application_never_asks() -> None:
    seen: list[Any] = []

    async def answer(receive: Any, _send: Any, connection: Connection) -> None:
        seen.append(list(call.gate.outcomes))
        connection.gone.set()
        await trio.sleep(0.01)
        seen.append(list(call.gate.outcomes))
        seen.append((await receive())["type"])

    call = Call(answer)
    trio.run(call.run)
    assert seen == [[], ["abandoned"], "http.disconnect"]
    assert call.gate.outcomes == ["abandoned"]


def test_an_exception_leaves_as_it_is_and_is_a_failure() -> None:
    error = RuntimeError("broken")

    async def answer(_receive: Any, _send: Any, _connection: Connection) -> None:
        await trio.sleep(0.01)
        raise error

    call = Call(answer)
    with pytest.raises(RuntimeError) as raised:
        trio.run(call.run)
    assert raised.value is error
    assert call.gate.outcomes == ["failure"]


def test_a_cancelled_request_has_abandoned_its_call() -> None:
    async def answer(_receive: Any, _send: Any, _connection: Connection) -> None:
        await trio.sleep_forever()

    async def main() -> None:
        with trio.move_on_after(0.01) as scope:
            await call.run()
        assert scope.cancelled_caught

    call = Call(answer)
    trio.run(main)
    assert call.gate.outcomes == ["abandoned"]


async def answers(_receive: Any, send: Any, _connection: Connection) -> None:
    await respond(send, 200)


@pytest.mark.parametrize(("used", "status"), [(0, 200), (100, 429)])
def test_a_ledger_is_asked_in_a_thread(used: int, status: int) -> None:
    asked: list[Any] = []

    def load(caller: Any) -> int:
        asked.append((caller, threading.current_thread() is threading.main_thread()))
        return used

    gate = seeded_gate()
    for _ in range(2):
        options = {"seeder": Seeder(gate, "tokens", load), "caller": lambda _scope: "ann"}
        call = Call(answers, gate, **options)
        trio.run(call.run)
        assert call.connection.sent[0]["status"] == status
        assert call.guard.internal_errors == 0
    assert asked == [("ann", False)]


def test_a_ledger_that_needs_asyncio_is_an_internal_error_that_counts() -> None:
    async def load(_caller: Any) -> int:
        return 0

    gate = seeded_gate()
    seeder = Seeder(gate, "tokens", load)
    for on_error, status in (("admit", 200), ("refuse", 503)):
        call = Call(answers, gate, seeder=seeder, caller=lambda _scope: "ann", on_error=on_error)
        trio.run(call.run)
        assert call.connection.sent[0]["status"] == status
        assert call.guard.internal_errors == 1
