"""A permit is settled once; a `with` block settles it on every way out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from callgate import Call, CallError, Gate, Permit, RateLimit, Refused
from callgate.vocabulary import Outcome, Settled
from engine_support import SECOND_NS, admitted, gate_of, remaining


def permit_of(gate: Gate, cost: int = 1, now_ns: int = 0) -> Permit:
    permit = gate.try_admit("default", "alice", cost=cost, now_ns=now_ns).permit
    assert permit is not None
    return permit


@pytest.mark.parametrize("outcome", ["success", "failure", "abandoned"])
def test_a_call_that_ran_is_paid_for(outcome: str) -> None:
    gate = gate_of()
    assert gate.settle(permit_of(gate), outcome, now_ns=0) == "ok"  # type: ignore[arg-type]
    assert remaining(gate) == 59


def test_a_cancelled_call_is_given_back() -> None:
    gate = gate_of()
    permit = permit_of(gate, cost=10)
    assert remaining(gate) == 50
    assert gate.settle(permit, "cancelled", now_ns=0) == "ok"
    assert remaining(gate) == 60


def test_a_cancellation_gives_back_no_more_than_time_has_left() -> None:
    gate = gate_of(count=1, burst=10)
    permit = permit_of(gate, cost=10)
    gate.settle(permit, "cancelled", now_ns=4 * SECOND_NS)
    assert remaining(gate, now_ns=4 * SECOND_NS) == 10
    assert admitted(gate, 20, now_ns=4 * SECOND_NS) == 10


def test_a_second_settlement_does_nothing_and_says_so() -> None:
    gate = gate_of()
    permit = permit_of(gate, cost=10)
    assert gate.settle(permit, "success", now_ns=0) == "ok"
    assert gate.settle(permit, "cancelled", now_ns=0) == "already_settled"
    assert gate.settle(permit, now_ns=0) == "already_settled"
    assert remaining(gate) == 50


def test_a_decision_has_one_permit_however_often_it_is_asked_for() -> None:
    gate = gate_of()
    decision = gate.try_admit("default", "alice", now_ns=0)
    first, second = decision.permit, decision.permit
    assert first is second and first is not None
    assert gate.settle(first, "cancelled", now_ns=0) == "ok"
    assert decision.permit is not None
    assert gate.settle(decision.permit, "cancelled", now_ns=0) == "already_settled"
    assert remaining(gate) == 60


def test_a_permit_outlives_its_decision() -> None:
    gate = gate_of()
    permits = [permit_of(gate) for _ in range(60)]
    assert remaining(gate) == 0
    assert {gate.settle(permit, "cancelled", now_ns=0) for permit in permits} == {"ok"}
    assert remaining(gate) == 60


def test_of_many_threads_one_settles() -> None:
    gate = gate_of(burst=1000)
    for _ in range(20):
        permit = permit_of(gate, cost=100)
        results: list[str] = []
        start = threading.Barrier(8)

        def settle(permit: Permit, start: threading.Barrier, results: list[str]) -> None:
            start.wait()
            results.append(gate.settle(permit, "cancelled", now_ns=0))

        arguments = (permit, start, results)
        threads = [threading.Thread(target=settle, args=arguments) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ["already_settled"] * 7 + ["ok"]
    assert remaining(gate) == 1000


def test_a_permit_of_another_gate_is_an_error_and_stays_unsettled() -> None:
    secret = b"0123456789abcdef"
    gate, twin = gate_of(secret=secret), gate_of(secret=secret)
    permit = permit_of(gate)
    with pytest.raises(CallError, match="permit is one of another gate") as raised:
        twin.settle(permit)
    assert raised.value.field == "permit"
    assert gate.settle(permit, now_ns=0) == "ok"


@pytest.mark.parametrize("thing", [None, 5, "permit", b"", object()])
def test_what_is_no_permit_is_a_type_error(thing: object) -> None:
    with pytest.raises(TypeError, match=r"permit must be a callgate\.Permit"):
        gate_of().settle(thing)  # type: ignore[arg-type]


def test_a_decision_is_no_permit() -> None:
    gate = gate_of()
    with pytest.raises(TypeError, match="not Decision"):
        gate.settle(gate.try_admit("default", "alice"))  # type: ignore[arg-type]


def test_a_bad_settlement_is_an_error_and_leaves_the_permit_as_it_was() -> None:
    gate = gate_of()
    permit = permit_of(gate)
    with pytest.raises(CallError, match="outcome must be one of 'success', 'failure'"):
        gate.settle(permit, "done")  # type: ignore[arg-type]
    with pytest.raises(CallError, match=r"used must be 0 to 2\^64-1 units"):
        gate.settle(permit, used=-1)
    with pytest.raises(CallError, match=r"now_ns must be below 2\^61"):
        gate.settle(permit, now_ns=2**61)
    with pytest.raises(CallError, match="unix_ns goes with now_ns"):
        gate.settle(permit, unix_ns=0)
    with pytest.raises(TypeError, match="outcome must be a str, not NoneType"):
        gate.settle(permit, None)  # type: ignore[arg-type]
    assert gate.settle(permit, now_ns=0) == "ok"


def test_settling_by_the_systems_clock_works_too() -> None:
    gate = gate_of(count=1, per="1h")
    decision = gate.try_admit("default", "alice", cost=1)
    assert decision.permit is not None
    assert gate.settle(decision.permit, "cancelled") == "ok"
    assert gate.peek("default", "alice", cost=0)[0].remaining == 60


class Recorder(Gate):
    """A gate that notes how its calls were settled."""

    def __init__(self) -> None:
        super().__init__(
            limits={"rate": RateLimit(30, burst=60)}, policies={"default": [("rate", "caller")]}
        )
        self.settlements: list[tuple[str, int, str]] = []

    def settle(
        self,
        permit: Permit,
        outcome: Outcome = "success",
        used: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Settled:
        result = super().settle(permit, outcome, used, now_ns, unix_ns)
        self.settlements.append((outcome, used, result))
        return result


def admit(gate: Gate, now_ns: int | None = 0) -> Call:
    return gate.admit("default", caller="alice", now_ns=now_ns)


def test_a_block_that_ends_settles_a_success() -> None:
    gate = Recorder()
    with admit(gate) as call:
        assert call.decision.remaining == 59
    assert gate.settlements == [("success", 0, "ok")]


def test_a_block_that_raises_settles_a_failure_and_passes_the_error_on() -> None:
    gate = Recorder()
    with pytest.raises(ZeroDivisionError), admit(gate):
        raise ZeroDivisionError
    assert gate.settlements == [("failure", 0, "ok")]


def test_a_block_that_is_cancelled_settles_an_abandoned_call() -> None:
    gate = Recorder()

    async def serve() -> None:
        with admit(gate):
            await asyncio.sleep(60)

    async def disconnect() -> None:
        task = asyncio.ensure_future(serve())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(disconnect())
    assert gate.settlements == [("abandoned", 0, "ok")]


def test_a_generator_that_is_closed_settles_an_abandoned_call() -> None:
    gate = Recorder()

    def stream() -> Generator[int, None, None]:
        with admit(gate):
            yield 1
            yield 2

    chunks = stream()
    next(chunks)
    chunks.close()
    assert gate.settlements == [("abandoned", 0, "ok")]


def test_an_interrupt_settles_an_abandoned_call() -> None:
    gate = Recorder()
    with pytest.raises(KeyboardInterrupt), admit(gate):
        raise KeyboardInterrupt
    assert gate.settlements == [("abandoned", 0, "ok")]


def test_a_call_that_is_cancelled_in_its_block_is_given_back_once() -> None:
    gate = Recorder()
    with admit(gate) as call:
        assert call.cancel() == "ok"
        assert call.cancel() == "already_settled"
    assert gate.settlements[0] == ("cancelled", 0, "ok")
    assert {result for _, _, result in gate.settlements[1:]} == {"already_settled"}
    assert remaining(gate) == 60


def test_a_call_can_be_settled_by_hand_within_its_block() -> None:
    gate = Recorder()
    with admit(gate) as call:
        call.used(7)
        assert call.settle("failure") == "ok"
    assert gate.settlements == [("failure", 7, "ok")]


def test_what_a_call_used_is_told_at_the_end_of_its_block() -> None:
    gate = Recorder()
    with admit(gate) as call:
        call.used(41)
        call.used(42)
        with pytest.raises(TypeError, match="units must be an int, not float"):
            call.used(1.5)  # type: ignore[arg-type]
        with pytest.raises(CallError, match=r"units must be 0 to 2\^64-1"):
            call.used(-1)
    assert gate.settlements == [("success", 42, "ok")]


def test_a_call_at_a_time_of_ours_is_cancelled_at_that_time() -> None:
    gate = gate_of()
    with gate.admit("default", "alice", cost=10, now_ns=5) as call:
        call.cancel()
    assert remaining(gate, now_ns=5) == 60


def test_a_call_by_the_systems_clock_is_cancelled_by_it() -> None:
    gate = gate_of(count=1, per="1h")
    with gate.admit("default", "alice", cost=10) as call:
        call.cancel()
    assert gate.peek("default", "alice", cost=0)[0].remaining == 60


def test_a_call_that_no_block_is_entered_with_keeps_its_charge() -> None:
    gate = gate_of()
    call = gate.admit("default", "alice", now_ns=0)
    del call
    assert remaining(gate) == 59


def test_a_refusal_raises_and_says_everything_in_a_sentence() -> None:
    gate = gate_of()
    gate.admit("default", "alice", cost=60, now_ns=0)
    with pytest.raises(Refused) as raised:
        gate.admit("default", "alice", now_ns=0)
    refused = raised.value
    assert str(refused) == "refused by limit 'rate' (rate): retry in 33.4 ms"
    assert (refused.reason, refused.by, refused.retry_after_ns) == ("rate", "rate", 33_333_334)
    assert refused.decision.remaining == 0 and refused.decision.permit is None
    assert not isinstance(refused, ValueError)


def test_a_cost_that_can_never_be_admitted_is_refused_without_a_time() -> None:
    with pytest.raises(Refused) as raised:
        gate_of().admit("default", "alice", cost=61)
    assert str(raised.value) == (
        "refused by limit 'rate' (never): the call asks for more than the 60 that it can ever hold"
    )


@pytest.mark.parametrize(
    ("wait_ns", "text"),
    [
        (1, "1 ns"),
        (1_500, "1.5 us"),
        (20 * 10**6, "20 ms"),
        (90 * 10**9, "1.5 m"),
        (7200 * 10**9, "2 h"),
    ],
)
def test_a_wait_is_told_in_the_unit_that_suits_it(wait_ns: int, text: str) -> None:
    gate = gate_of(count=1, per=wait_ns, burst=1)
    gate.admit("default", "alice", now_ns=0)
    with pytest.raises(Refused, match=f"retry in {text}$"):
        gate.admit("default", "alice", now_ns=0)
