"""Concurrency limits: places are given back once on every way out, and breakers open and close."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncGenerator, Generator

import pytest

from callgate import Call, ConcurrencyLimit, Gate, Guards, Permit, RateLimit, Refused
from engine_support import SECOND_NS, in_child

MS = 1_000_000


def gate_of_places(count: int = 3, **options: int | str) -> Gate:
    """A gate of one concurrency limit, `server`, that all calls share."""
    return Gate(
        limits={"server": ConcurrencyLimit(count, **options)},  # type: ignore[arg-type]
        policies={"default": [("server", "shared")]},
        capacity=16,
    )


def in_flight(gate: Gate, now_ns: int | None = None) -> int:
    return gate.guards("server", now_ns).in_flight


def take(gate: Gate, now_ns: int = 0) -> Permit:
    permit = gate.try_admit("default", now_ns=now_ns).permit
    assert permit is not None
    return permit


def refusal(gate: Gate, now_ns: int) -> tuple[str | None, int, int]:
    decision = gate.try_admit("default", now_ns=now_ns)
    return decision.reason, decision.retry_after_ns, decision.remaining


def test_over_the_limit_a_call_is_refused_at_once_and_takes_no_place() -> None:
    gate = gate_of_places(3)
    permits = [take(gate) for _ in range(3)]
    assert refusal(gate, 0) == ("concurrency", 0, 0)
    assert in_flight(gate, 0) == 3
    assert gate.settle(permits[0], now_ns=0) == "ok"
    assert gate.try_admit("default", now_ns=0).remaining == 0
    with pytest.raises(Refused) as raised:
        gate.admit("default", now_ns=0)
    assert str(raised.value) == (
        "refused by limit 'server' (concurrency): all of its 3 places are taken"
    )


def test_a_batch_takes_one_place() -> None:
    gate = gate_of_places(3)
    assert gate.try_admit("default", cost=50, now_ns=0).remaining == 2


def test_refusals_in_a_row_open_the_breaker_and_time_closes_it() -> None:
    gate = gate_of_places(1, reject_trip=3, cooldown="30s")
    permit = take(gate)
    assert refusal(gate, 0) == ("concurrency", 0, 0)
    assert refusal(gate, 0) == ("concurrency", 0, 0)
    assert refusal(gate, 0) == ("breaker_open", 30 * SECOND_NS, 0)
    assert gate.guards("server", 0) == Guards(1, open=1, half_open=0, trips=1, lapsed=0)
    assert gate.settle(permit, now_ns=SECOND_NS) == "ok"
    assert refusal(gate, 29 * SECOND_NS) == ("breaker_open", SECOND_NS, 1)
    assert refusal(gate, 30 * SECOND_NS - 1) == ("breaker_open", 1, 1)
    assert gate.try_admit("default", now_ns=30 * SECOND_NS)
    assert gate.guards("server", 30 * SECOND_NS) == Guards(1, 0, 0, trips=1, lapsed=0)


def test_a_refusal_by_an_open_breaker_says_when_to_come_back() -> None:
    gate = gate_of_places(1, reject_trip=1, cooldown="30s")
    take(gate)
    with pytest.raises(Refused, match=r"by limit 'server' \(breaker_open\): retry in 30 s$"):
        gate.admit("default", now_ns=0)


def test_failures_in_a_row_open_the_breaker_and_a_probe_that_succeeds_closes_it() -> None:
    gate = gate_of_places(3, failure_trip=2, cooldown="10s", half_open_probes=1)
    first, second = take(gate), take(gate)
    gate.settle(first, "failure", now_ns=0)
    gate.settle(second, "failure", now_ns=SECOND_NS)
    assert refusal(gate, 5 * SECOND_NS) == ("breaker_open", 6 * SECOND_NS, 3)

    probe = take(gate, 11 * SECOND_NS)
    assert refusal(gate, 11 * SECOND_NS) == ("breaker_open", 0, 2)
    assert gate.guards("server", 11 * SECOND_NS) == Guards(1, 0, half_open=1, trips=1, lapsed=0)
    gate.settle(probe, "failure", now_ns=12 * SECOND_NS)
    assert refusal(gate, 12 * SECOND_NS) == ("breaker_open", 10 * SECOND_NS, 3)

    gate.settle(take(gate, 22 * SECOND_NS), "abandoned", now_ns=23 * SECOND_NS)
    gate.settle(take(gate, 23 * SECOND_NS), "success", now_ns=24 * SECOND_NS)
    for _ in range(3):
        take(gate, 24 * SECOND_NS)
    assert gate.guards("server", 24 * SECOND_NS) == Guards(3, 0, 0, trips=2, lapsed=0)


def test_a_success_breaks_a_streak_and_a_call_that_never_ran_does_not() -> None:
    gate = gate_of_places(3, failure_trip=2, cooldown="10s")
    for outcome in ("failure", "success", "failure", "cancelled", "abandoned"):
        gate.settle(take(gate), outcome, now_ns=0)
    assert gate.guards("server", 0).trips == 0
    gate.settle(take(gate), "failure", now_ns=0)
    assert gate.guards("server", 0) == Guards(0, open=1, half_open=0, trips=1, lapsed=0)


def test_a_refusal_by_a_later_limit_takes_no_place_and_trips_nothing() -> None:
    gate = Gate(
        limits={
            "server": ConcurrencyLimit(2, reject_trip=1, cooldown="1s"),
            "rate": RateLimit(1, per="1h", burst=1),
        },
        policies={"default": [("server", "shared"), ("rate", "shared")]},
    )
    assert gate.try_admit("default", now_ns=0)
    for _ in range(10):
        assert gate.try_admit("default", now_ns=0).by == "rate"
    assert gate.guards("server", 0) == Guards(1, 0, 0, 0, 0)


def test_a_place_that_nobody_gives_back_is_free_after_one_to_two_leases() -> None:
    gate = gate_of_places(1, lease="1s")
    lost = take(gate, SECOND_NS // 2)
    assert refusal(gate, 2 * SECOND_NS - 1) == ("concurrency", 0, 0)
    assert in_flight(gate, 2 * SECOND_NS) == 0
    again = take(gate, 2 * SECOND_NS)
    assert gate.settle(lost, now_ns=2 * SECOND_NS) == "lapsed"
    assert gate.settle(lost, now_ns=2 * SECOND_NS) == "already_settled"
    assert gate.guards("server", 2 * SECOND_NS) == Guards(1, 0, 0, 0, lapsed=1)
    assert gate.settle(again, now_ns=2 * SECOND_NS) == "ok"
    assert in_flight(gate, 2 * SECOND_NS) == 0


def test_a_second_settlement_gives_no_second_place_back() -> None:
    gate = gate_of_places(3)
    first, _ = take(gate), take(gate)
    for expected in ("ok", "already_settled", "already_settled"):
        assert gate.settle(first, "failure", now_ns=0) == expected
    assert in_flight(gate, 0) == 1


class Gone(BaseException):
    """An exception that is no Exception."""


@pytest.mark.parametrize("error", [ValueError, Gone, GeneratorExit, KeyboardInterrupt, None])
def test_a_place_is_given_back_on_every_way_out_of_a_block(
    error: type[BaseException] | None,
) -> None:
    gate = gate_of_places(1)
    for _ in range(3):
        try:
            with gate.admit("default") as call:
                assert in_flight(gate) == 1
                if error is not None:
                    raise error
        except BaseException as raised:
            assert type(raised) is error
        assert in_flight(gate) == 0
        assert call.settle() == "already_settled"


def test_async_with_gives_a_place_back_too() -> None:
    gate = gate_of_places(1, failure_trip=1, cooldown="1h")

    async def serve(error: Exception | None) -> None:
        async with gate.admit("default") as call:
            assert in_flight(gate) == 1
            call.used(5)
            if error is not None:
                raise error

    asyncio.run(serve(None))
    assert gate.guards("server") == Guards(0, 0, 0, 0, 0)
    with pytest.raises(OSError):
        asyncio.run(serve(OSError()))
    assert gate.guards("server") == Guards(0, open=1, half_open=0, trips=1, lapsed=0)


def test_a_call_whose_block_is_never_entered_gives_its_place_back_when_it_is_gone() -> None:
    gate = gate_of_places(1, failure_trip=1, cooldown="1h")
    call = gate.admit("default")
    assert in_flight(gate) == 1
    del call
    assert gate.guards("server") == Guards(0, 0, 0, 0, 0)


def test_a_stream_that_never_starts_gives_its_place_back() -> None:
    gate = gate_of_places(1)

    def stream(call: Call) -> Generator[int, None, None]:
        with call:
            yield 1

    chunks = stream(gate.admit("default"))
    assert in_flight(gate) == 1
    del chunks
    assert in_flight(gate) == 0


def test_a_stream_that_breaks_off_gives_its_place_back() -> None:
    gate = gate_of_places(1)

    async def stream() -> AsyncGenerator[int, None]:
        async with gate.admit("default"):
            yield 1
            yield 2

    async def read_one() -> None:
        chunks = stream()
        assert await anext(chunks) == 1
        assert in_flight(gate) == 1
        await chunks.aclose()

    asyncio.run(read_one())
    assert in_flight(gate) == 0


def test_a_stream_that_nobody_closes_gives_its_place_back_with_its_loop() -> None:
    gate = gate_of_places(1)

    async def stream() -> AsyncGenerator[int, None]:
        async with gate.admit("default"):
            yield 1
            yield 2

    async def read_one() -> int:
        async for chunk in stream():
            return chunk
        return 0

    assert asyncio.run(read_one()) == 1
    assert in_flight(gate) == 0


def test_a_call_in_a_cycle_of_garbage_gives_its_place_back() -> None:
    gate = gate_of_places(1)
    cycle: list[object] = [gate.admit("default")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert in_flight(gate) == 0


def test_a_decision_that_is_dropped_keeps_its_place_for_its_lease() -> None:
    gate = gate_of_places(1)
    gate.try_admit("default", now_ns=0)
    assert in_flight(gate, 0) == 1


def test_thousands_of_tasks_that_are_killed_in_the_middle_leave_nothing_in_flight() -> None:
    gate = gate_of_places(4095)
    finished: list[int] = []

    async def serve(n: int) -> None:
        if n % 2:
            with gate.admit("default"):
                await work(n)
        else:
            async with gate.admit("default"):
                await work(n)

    async def work(n: int) -> None:
        await asyncio.sleep(0 if n % 5 == 0 else 60)
        if n % 10 == 0:
            raise OSError
        finished.append(n)

    async def main() -> None:
        tasks = [asyncio.create_task(serve(n)) for n in range(4095)]
        await asyncio.sleep(0)
        assert in_flight(gate) > 3000
        await asyncio.sleep(0)
        killed = sum(task.cancel() for task in tasks)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled = sum(isinstance(result, asyncio.CancelledError) for result in results)
        assert killed >= cancelled >= 3276

    asyncio.run(main())
    assert gate.guards("server") == Guards(0, 0, 0, 0, 0)
    assert len(finished) <= 819


def test_tasks_that_are_cancelled_before_they_begin_take_no_place() -> None:
    gate = gate_of_places(3)

    async def serve() -> None:
        with gate.admit("default"):
            await asyncio.sleep(60)

    async def main() -> None:
        tasks = [asyncio.create_task(serve()) for _ in range(100)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert gate.stats().decisions["default", None, None] == 0
    assert in_flight(gate) == 0


def test_another_thread_may_settle() -> None:
    gate = gate_of_places(1)
    results: list[str] = []
    with gate.admit("default") as call:
        thread = threading.Thread(target=lambda: results.append(call.settle("failure")))
        thread.start()
        thread.join()
        assert in_flight(gate) == 0
        with gate.admit("default"):
            assert in_flight(gate) == 1
    assert results == ["ok"]
    assert in_flight(gate) == 0


def test_threads_never_hold_more_than_all_places() -> None:
    gate = gate_of_places(3)
    lock = threading.Lock()
    inside, most = 0, 0

    def serve() -> None:
        nonlocal inside, most
        for _ in range(500):
            decision = gate.try_admit("default")
            if decision.permit is None:
                continue
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1
            assert gate.settle(decision.permit) == "ok"

    threads = [threading.Thread(target=serve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 3
    assert in_flight(gate) == 0


def test_a_process_that_is_forked_in_a_block_does_not_give_the_place_back() -> None:
    gate = gate_of_places(2)
    parent = os.getpid()
    with gate.admit("default") as call:

        def leave() -> int:
            call.__exit__(None, None, None)
            return in_flight(gate)

        assert in_child(leave) == 1
        assert os.getpid() == parent and in_flight(gate) == 1
    assert in_flight(gate) == 0


def test_workers_share_the_places() -> None:
    gate = gate_of_places(2)
    with gate.admit("default"):
        assert in_child(lambda: sum(bool(gate.try_admit("default")) for _ in range(5))) == 1
        assert not gate.try_admit("default")


def test_a_lower_limit_lets_those_in_flight_end() -> None:
    gate = gate_of_places(3)
    permits = [take(gate) for _ in range(3)]
    gate.reconfigure("server", ConcurrencyLimit(1), now_ns=0)
    for permit in permits:
        assert not gate.try_admit("default", now_ns=0)
        assert gate.settle(permit, now_ns=0) == "ok"
    assert gate.try_admit("default", now_ns=0).limit == 1


def test_cooldowns_are_kept_in_whole_milliseconds_rounded_up() -> None:
    gate = gate_of_places(1, reject_trip=1, cooldown=MS + 1)
    take(gate)
    assert refusal(gate, 0) == ("breaker_open", 2 * MS, 0)
