"""Charging once and settling once, whichever middleware asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
)

from callgate import Gate, RateLimit
from callgate.mcp import FastMCPMiddleware, SDKMiddleware
from callgate.mcp.call import run_call
from callgate.mcp.charge import RECEIPTS, Charge, Receipt
from callgate.mcp.message import Entry
from callgate.mcp.meter import Meter
from mcp_support import Clock, SettlementGate, asynchronous, charged, make_gate


def make_meter(gate: Any, clock: Clock, **options: Any) -> Meter:
    return Meter(gate, clock=clock, **options)


def charge() -> Charge:
    return Charge(lambda *_: None)


def test_a_receipt_is_good_for_the_calls_that_were_paid_and_no_more() -> None:
    gate, clock = make_gate(), Clock()
    meter = make_meter(gate, clock)
    scope = {RECEIPTS: (Receipt(make_gate(), 9, charge()), Receipt(gate, 2, paid := charge()))}
    holds = [meter.take_receipt(scope) for _ in range(4)]
    assert [hold and hold.charge for hold in holds] == [paid, paid, None, None]
    assert not meter.take_receipt({})
    assert not meter.take_receipt(None)


def test_a_receipt_is_void_once_its_charge_is_over() -> None:
    gate = make_gate()
    meter, paid = make_meter(gate, Clock()), charge()
    hold, receipt = paid.hold(), Receipt(gate, 9, paid)
    inner = meter.take_receipt({RECEIPTS: (receipt,)})
    hold.settle("success")
    assert inner is not None and meter.take_receipt({RECEIPTS: (receipt,)}) is not None
    paid = charge()
    receipt = Receipt(gate, 9, paid)
    paid.hold().settle("abandoned")
    assert meter.take_receipt({RECEIPTS: (receipt,)}) is None


@asynchronous
async def test_a_verdict_is_settled_by_the_first_way_out_alone() -> None:
    gate = SettlementGate(make_gate())
    verdict = await make_meter(gate, Clock()).decide([Entry("work")], None, None)
    for outcome in ("abandoned", "success", "failure"):
        verdict.settle(outcome)
    assert gate.outcomes == ["abandoned"]


@asynchronous
async def test_calls_admitted_before_an_internal_error_are_taken_back() -> None:
    limit = RateLimit(1, per="1h", burst=5)
    real = Gate(
        limits={"tool": limit},
        policies={"anonymous": [("tool", "tool")], "authenticated": [("tool", "tool")]},
        capacity=16,
    )

    class FailsAtTheSecond(SettlementGate):
        def try_admit(self, policy: str, caller: Any, tool: Any, **options: Any) -> Any:
            if tool == "b":
                raise ZeroDivisionError
            return real.try_admit(policy, caller, tool, **options)

    gate, clock = FailsAtTheSecond(real), Clock()
    meter = make_meter(gate, clock)
    verdict = await meter.decide([Entry("a"), Entry("b")], None, None)
    assert not verdict.refused
    assert gate.outcomes == ["cancelled"]
    assert real.peek("anonymous", tool="a", cost=0, now_ns=clock())[0].remaining == 5


class Run:
    """One call through `run_call`, without any SDK."""

    def __init__(self, gate: Any, error: BaseException | None = None) -> None:
        self.meter = make_meter(gate, Clock())
        self._error = error

    async def call(self) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        return {"isError": False}

    async def __call__(self) -> Any:
        return await run_call(
            self.meter,
            entry=Entry("work"),
            source=None,
            scope={},
            error_code=-31004,
            call=self.call,
            refuse=lambda error: error,
            is_client_fault=lambda error: isinstance(error, ValueError),
        )


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (RuntimeError(), "failure"),
        (ValueError(), "abandoned"),
        (GeneratorExit(), "abandoned"),
        (KeyboardInterrupt(), "abandoned"),
    ],
)
def test_every_way_out_settles_once(error: BaseException | None, outcome: str) -> None:
    gate = SettlementGate(make_gate())
    # Driven by hand: an event loop would not hand GeneratorExit and KeyboardInterrupt on.
    with pytest.raises(StopIteration if error is None else type(error)):
        Run(gate, error)().send(None)
    assert gate.outcomes == [outcome]


def test_a_call_that_is_closed_while_it_waits_is_abandoned() -> None:
    gate = SettlementGate(make_gate())

    class Waits(Run):
        async def call(self) -> dict[str, Any]:
            await Suspend()
            return {}

    class Suspend:
        def __await__(self) -> Any:
            yield

    running = Waits(gate)()
    running.send(None)
    running.close()
    assert gate.outcomes == ["abandoned"]


def sdk_context(**fields: Any) -> Any:
    params = {"name": "work", "arguments": {}}
    defaults = {"method": "tools/call", "request_id": 1, "params": params, "request": None}
    return SimpleNamespace(**{**defaults, **fields})


@asynchronous
async def test_a_notification_is_no_call_whatever_its_method() -> None:
    gate, clock = make_gate(), Clock()
    middleware = SDKMiddleware(gate, clock=clock)

    async def call_next(_context: Any) -> None:
        return None

    for _ in range(9):
        await middleware(sdk_context(request_id=None), call_next)
    assert charged(gate, clock) == 0
    await middleware(sdk_context(), call_next)
    assert charged(gate, clock) == 1


@pytest.mark.parametrize("params", [None, {}, {"name": 7}, {"name": ""}])
@asynchronous
async def test_a_call_without_a_tool_is_charged(params: Any) -> None:
    gate, clock = make_gate(), Clock()

    async def call_next(_context: Any) -> Any:
        raise MCPError(INVALID_PARAMS, "Invalid params")

    with pytest.raises(MCPError):
        await SDKMiddleware(gate, clock=clock)(sdk_context(params=params), call_next)
    assert charged(gate, clock) == 1


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (INVALID_PARAMS, "abandoned"),
        (MISSING_REQUIRED_CLIENT_CAPABILITY, "abandoned"),
        (URL_ELICITATION_REQUIRED, "abandoned"),
        (INTERNAL_ERROR, "failure"),
        (REQUEST_TIMEOUT, "failure"),
    ],
)
@asynchronous
async def test_the_clients_own_mistakes_do_not_count_against_the_server(
    code: int, outcome: str
) -> None:
    gate = SettlementGate(make_gate())

    async def call_next(_context: Any) -> Any:
        raise MCPError(code, "bad")

    with pytest.raises(MCPError):
        await SDKMiddleware(gate)(sdk_context(), call_next)
    message: Any = SimpleNamespace(name="work", input_responses=None)
    context: Any = SimpleNamespace(message=message, method="tools/call", fastmcp_context=None)
    with pytest.raises(MCPError):
        await FastMCPMiddleware(gate).on_call_tool(context, call_next)
    assert gate.outcomes == [outcome] * 2
