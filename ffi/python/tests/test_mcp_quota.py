"""Quotas behind the middlewares: they run out by what calls report, and are told by a ledger."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from callgate import OFF, ConcurrencyLimit, Gate, Quota, Seeder
from callgate.mcp import report_usage
from mcp_asgi_support import App, metered, request, respond
from mcp_support import Clock, asynchronous, call_message


@asynchronous
async def test_a_quota_runs_out_by_what_calls_report_and_returns_at_midnight() -> None:
    gate = Gate(
        limits={"tokens": Quota(1_000)},
        policies={"authenticated": [("tokens", "caller")], "anonymous": [("tokens", "shared")]},
        capacity=100,
    )
    day_ns = 86_400 * 1_000_000_000
    clock, wall = Clock(), Clock(20_000 * day_ns + day_ns - 90 * 1_000_000_000)

    async def answer(_receive: Any, send: Any) -> None:
        report_usage(600)
        await respond(send, 200)

    guard, _, _, _ = metered(
        App(answer), gate, clock=clock, wall_clock=wall, caller=lambda _scope: "ann"
    )
    # The second overdraws, and the overdraft is what refuses the third.
    answers = [await request(guard, call_message()) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert answers[2].headers[b"retry-after"] == b"90"
    assert answers[2].json["error"]["data"] == {
        "reason": "quota",
        "limit": "tokens",
        "retryAfterMs": 90_000,
    }
    wall.advance_s(90)
    assert (await request(guard, call_message())).status == 200


def seeded_gate() -> Gate:
    rules = [("tokens", "caller"), ("server", "shared")]
    return Gate(
        limits={
            "open": OFF,
            "tokens": Quota(1_000, must_seed=True),
            "server": ConcurrencyLimit(2),
        },
        policies={"authenticated": rules, "anonymous": [("open", "shared")]},
        capacity=100,
    )


@asynchronous
async def test_a_quota_that_nobody_has_told_about_is_a_503_or_asks_a_ledger() -> None:
    guard, _, _, _ = metered(App(), seeded_gate(), caller=lambda _scope: "ann")
    refused = await request(guard, call_message())
    assert refused.status == 503
    assert refused.headers[b"retry-after"] == b"1"
    assert refused.json["error"]["data"]["reason"] == "unseeded"

    asked: list[Any] = []

    async def ledger(caller: Any) -> int:
        asked.append(caller)
        await asyncio.sleep(0)
        return 1_000 if caller == "ben" else 0

    gate = seeded_gate()
    guard, _, _, _ = metered(
        App(),
        gate,
        caller=lambda scope: scope["caller"],
        seeder=Seeder(gate, "tokens", ledger),
    )
    calls = [request(guard, call_message(), caller="ann") for _ in range(2)]
    assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 2
    assert (await request(guard, call_message(), caller="ben")).status == 429
    assert asked == ["ann", "ben"]


@asynchronous
async def test_a_client_that_leaves_while_a_ledger_is_asked_has_taken_no_place() -> None:
    asking, gate = asyncio.Event(), seeded_gate()

    async def ledger(_caller: Any) -> int:
        asking.set()
        await asyncio.Event().wait()
        return 0

    guard, _, _, clock = metered(
        App(), gate, caller=lambda _scope: "ann", seeder=Seeder(gate, "tokens", ledger)
    )
    call = asyncio.create_task(request(guard, call_message()))
    await asking.wait()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    assert gate.guards("server", now_ns=clock()).in_flight == 0


@asynchronous
async def test_an_estimate_above_what_is_left_is_refused() -> None:
    gate = Gate(
        limits={"tokens": Quota(1_000)},
        policies={"authenticated": [("tokens", "caller")], "anonymous": [("tokens", "shared")]},
        capacity=100,
    )
    guard, _, _, _ = metered(App(), gate, wall_clock=Clock(), reserve=400)
    assert [(await request(guard, call_message())).status for _ in range(3)] == [200, 200, 429]
    guard, _, _, _ = metered(App(), gate, wall_clock=Clock(), reserve=1_001)
    answer = await request(guard, call_message())
    assert answer.json["error"]["data"]["reason"] == "never"
    assert "sets aside more" in answer.json["error"]["message"]


@asynchronous
async def test_a_batch_whose_estimates_exceed_what_can_be_counted_is_refused() -> None:
    gate = Gate(
        limits={"tokens": Quota(1_000)},
        policies={"authenticated": [("tokens", "caller")], "anonymous": [("tokens", "shared")]},
        capacity=100,
    )
    guard, app, _, _ = metered(App(), gate, wall_clock=Clock(), reserve=2**64 - 1)
    answer = await request(guard, [call_message()] * 2)
    assert answer.json["error"]["data"]["reason"] == "never"
    assert (app.bodies, guard.internal_errors) == ([], 0)
