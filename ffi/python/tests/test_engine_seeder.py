"""A Seeder asks a ledger once for each caller, and says what becomes of a call where that fails."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from callgate import ConfigError, Gate, Quota, RateLimit, Refused, Seeder
from callgate.seeder import Identity, Load

DAY_NS = 86_400 * 10**9
UNTYPED: Any = Seeder


def gate_of_units(limit: int = 10, **options: Any) -> Gate:
    return Gate(
        limits={"tokens": Quota(limit, must_seed=True, **options), "rate": RateLimit(1000)},
        policies={
            "default": [("tokens", "caller"), ("rate", "caller")],
            "free": [("rate", "caller")],
        },
        capacity=100,
    )


class Ledger:
    """What was used before the restart, and who asked."""

    def __init__(self, used: int = 7, wait_s: float = 0.0) -> None:
        self.used = used
        self.wait_s = wait_s
        self.asked: list[Identity] = []
        self.fails = False

    def load(self, caller: Identity) -> int:
        self.asked.append(caller)
        time.sleep(self.wait_s)
        if self.fails:
            raise OSError("the ledger is away")
        return self.used

    async def load_async(self, caller: Identity) -> int:
        self.asked.append(caller)
        await asyncio.sleep(self.wait_s)
        if self.fails:
            raise OSError("the ledger is away")
        return self.used


def left(gate: Gate, caller: Identity = "alice") -> int:
    return gate.peek("default", caller)[0].remaining


def test_a_caller_is_loaded_once_and_then_decided() -> None:
    gate, ledger = gate_of_units(10), Ledger(7)
    seeder = Seeder(gate, "tokens", ledger.load)
    for _ in range(3):
        assert seeder.try_admit("default", "alice")
    assert ledger.asked == ["alice"]
    assert left(gate) == 3
    assert seeder.try_admit("default", b"alice")
    assert ledger.asked == ["alice"]


def test_who_has_used_all_is_refused_by_the_quota() -> None:
    seeder = Seeder(gate_of_units(10), "tokens", Ledger(10).load)
    decision = seeder.try_admit("default", "alice")
    assert (decision.reason, decision.by, decision.remaining) == ("quota", "tokens", 0)
    with pytest.raises(Refused, match="quota"):
        seeder.admit("default", "alice")


def test_a_block_of_a_seeder_settles_like_any_other() -> None:
    gate = gate_of_units(10)
    seeder = Seeder(gate, "tokens", Ledger(1).load)
    with seeder.admit("default", "alice", reserve=5) as call:
        call.used(2)
    assert left(gate) == 7

    async def serve() -> None:
        with await seeder.admit_async("default", "alice") as call:
            call.used(3)

    asyncio.run(serve())
    assert left(gate) == 4


def test_a_policy_without_the_quota_loads_nothing() -> None:
    ledger = Ledger()
    seeder = Seeder(gate_of_units(), "tokens", ledger.load)
    assert seeder.try_admit("free", "alice")
    assert ledger.asked == []


def test_a_new_window_is_loaded_anew() -> None:
    ledger = Ledger(7)
    seeder = Seeder(gate_of_units(10), "tokens", ledger.load)
    for day in (0, 0, 1, 1):
        assert seeder.try_admit("default", "alice", now_ns=day, unix_ns=day * DAY_NS)
    assert len(ledger.asked) == 2


def test_many_threads_of_one_caller_share_one_load() -> None:
    gate, ledger = gate_of_units(1000), Ledger(7, wait_s=0.05)
    seeder = Seeder(gate, "tokens", ledger.load)
    verdicts: list[bool] = []
    start = threading.Barrier(16)

    def call() -> None:
        start.wait()
        verdicts.append(seeder.try_admit("default", "alice", reserve=1).admitted)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 16
    assert ledger.asked == ["alice"]
    assert left(gate) == 1000 - 7 - 16


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_many_tasks_of_one_caller_share_one_load(is_async: bool) -> None:
    gate, ledger = gate_of_units(1000), Ledger(7, wait_s=0.02)
    load: Load = ledger.load_async if is_async else ledger.load
    seeder = Seeder(gate, "tokens", load)

    async def main() -> None:
        callers = ["alice", "bob"] * 50
        decisions = await asyncio.gather(
            *(seeder.try_admit_async("default", caller, reserve=1) for caller in callers)
        )
        assert all(decisions)

    asyncio.run(main())
    assert sorted(map(str, ledger.asked)) == ["alice", "bob"]
    assert left(gate, "alice") == left(gate, "bob") == 1000 - 7 - 50


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_a_call_that_is_cancelled_leaves_the_load_to_those_who_wait(is_async: bool) -> None:
    gate, ledger = gate_of_units(1000), Ledger(7, wait_s=0.05)
    load: Load = ledger.load_async if is_async else ledger.load
    seeder = Seeder(gate, "tokens", load)

    async def main() -> None:
        first = asyncio.create_task(seeder.try_admit_async("default", "alice"))
        await asyncio.sleep(0)
        second = asyncio.create_task(seeder.try_admit_async("default", "alice"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second

    asyncio.run(main())
    assert ledger.asked == ["alice"]


def test_a_load_that_ends_with_its_loop_leaves_nobody_waiting() -> None:
    gate, ledger = gate_of_units(1000), Ledger(7, wait_s=60)
    seeder = Seeder(gate, "tokens", ledger.load_async)

    async def abandon() -> None:
        task = asyncio.create_task(seeder.try_admit_async("default", "alice"))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(abandon())
    ledger.wait_s = 0
    assert asyncio.run(seeder.try_admit_async("default", "alice"))
    assert seeder.load_errors == 0


def test_a_load_whose_loop_was_closed_around_it_leaves_nobody_waiting() -> None:
    gate, ledger = gate_of_units(1000), Ledger(7, wait_s=60)
    seeder = Seeder(gate, "tokens", ledger.load_async)
    loop = asyncio.new_event_loop()
    task = loop.create_task(seeder.try_admit_async("default", "alice"))
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    assert ledger.asked == ["alice"]
    left_behind: Any
    for left_behind in (task, *seeder._tasks):
        left_behind._log_destroy_pending = False
    loop.close()
    ledger.wait_s = 0
    assert asyncio.run(asyncio.wait_for(seeder.try_admit_async("default", "alice"), 10))


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_without_asyncio_there_is_an_error_and_nobody_is_left_waiting(is_async: bool) -> None:
    gate, ledger = gate_of_units(10), Ledger(7)
    load: Load = ledger.load_async if is_async else ledger.load
    seeder = Seeder(gate, "tokens", load)
    with pytest.raises(RuntimeError, match="needs asyncio"):
        seeder.try_admit_async("default", "alice").send(None)
    assert (ledger.asked, seeder._flights) == ([], {})
    assert asyncio.run(asyncio.wait_for(seeder.try_admit_async("default", "alice"), 10))
    # What needs no load needs no event loop.
    with pytest.raises(StopIteration) as returned:
        seeder.try_admit_async("default", "alice").send(None)
    assert returned.value.value.admitted


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_a_load_that_cannot_be_started_leaves_nobody_waiting(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, ledger = gate_of_units(10), Ledger(7)
    load: Load = ledger.load_async if is_async else ledger.load
    seeder = Seeder(gate, "tokens", load)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "create_task", fail)
            patch.setattr(loop, "run_in_executor", fail)
            with pytest.raises(MemoryError):
                await seeder.try_admit_async("default", "alice")
        assert await asyncio.wait_for(seeder.try_admit_async("default", "alice"), 10)

    asyncio.run(main())


def test_a_load_that_an_executor_drops_leaves_nobody_waiting() -> None:
    gate, ledger = gate_of_units(10), Ledger(7)
    seeder = Seeder(gate, "tokens", ledger.load)

    async def main() -> None:
        may_end, loop = threading.Event(), asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1)
        loop.set_default_executor(executor)
        executor.submit(may_end.wait)
        call = asyncio.create_task(seeder.try_admit_async("default", "alice"))
        await asyncio.sleep(0.01)
        executor.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor(1))
        may_end.set()
        assert await asyncio.wait_for(call, 10)

    asyncio.run(main())
    assert ledger.asked == ["alice"]


def test_two_loops_in_two_threads_share_a_load() -> None:
    gate, ledger = gate_of_units(1000), Ledger(7, wait_s=0.05)
    seeder = Seeder(gate, "tokens", ledger.load_async)
    verdicts: list[bool] = []

    def run() -> None:
        verdicts.append(asyncio.run(seeder.try_admit_async("default", "alice")).admitted)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 4
    assert len(ledger.asked) == 1


def test_a_load_that_fails_refuses_and_is_not_tried_again_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = Ledger()
    ledger.fails = True
    seeder = Seeder(gate_of_units(10), "tokens", ledger.load, retry_after="5s")
    with caplog.at_level(logging.WARNING, "callgate"):
        for _ in range(3):
            assert seeder.try_admit("default", "alice", now_ns=0, unix_ns=0).reason == "unseeded"
    assert len(ledger.asked) == seeder.load_errors == len(caplog.records) == 1
    assert "'tokens'" in caplog.text and "the ledger is away" in caplog.text
    assert "alice" not in caplog.records[0].getMessage()
    assert seeder.try_admit("default", "bob", now_ns=0, unix_ns=0).reason == "unseeded"
    assert ledger.asked == ["alice", "bob"]

    ledger.fails = False
    almost = 5 * 10**9 - 1
    assert not seeder.try_admit("default", "alice", now_ns=almost, unix_ns=almost)
    assert seeder.try_admit("default", "alice", now_ns=almost + 1, unix_ns=almost + 1)
    assert seeder.load_errors == 2


def test_a_load_that_fails_may_be_taken_for_nothing_used() -> None:
    ledger = Ledger()
    ledger.fails = True
    gate = gate_of_units(10)
    seeder = Seeder(gate, "tokens", ledger.load, on_error="zero")
    assert seeder.try_admit("default", "alice")
    assert asyncio.run(seeder.try_admit_async("default", "alice"))
    assert (seeder.load_errors, left(gate)) == (1, 10)


def test_an_async_load_that_fails_is_treated_the_same() -> None:
    ledger = Ledger()
    ledger.fails = True
    seeder = Seeder(gate_of_units(10), "tokens", ledger.load_async)

    async def main() -> None:
        calls = [seeder.try_admit_async("default", "alice") for _ in range(10)]
        for decision in await asyncio.gather(*calls):
            assert decision.reason == "unseeded"

    asyncio.run(main())
    assert len(ledger.asked) == seeder.load_errors == 1


@pytest.mark.parametrize("loaded", [-1, 2**64, "7", None, 1.5, True])
def test_a_load_that_returns_no_number_of_units_has_failed(loaded: Any) -> None:
    seeder = Seeder(gate_of_units(10), "tokens", lambda caller: loaded)
    assert seeder.try_admit("default", "alice").reason == "unseeded"
    assert seeder.load_errors == 1


def test_what_was_loaded_before_midnight_is_not_taken_for_the_new_day() -> None:
    gate = gate_of_units(10, per="1s")
    ledger = Ledger(10)

    def load(caller: Identity) -> int:
        ledger.asked.append(caller)
        if len(ledger.asked) == 1:
            time.sleep(1.01)
            return 10
        return 0

    assert Seeder(gate, "tokens", load).try_admit("default", "alice")
    assert len(ledger.asked) == 2


def test_a_flood_of_callers_whose_loads_fail_takes_no_memory() -> None:
    ledger = Ledger()
    ledger.fails = True
    seeder = Seeder(gate_of_units(10), "tokens", ledger.load)
    logging.disable(logging.WARNING)
    try:
        for n in range(1000):
            assert not seeder.try_admit("default", f"user {n}")
    finally:
        logging.disable(logging.NOTSET)
    assert seeder.load_errors == 1000
    assert len(seeder._resting) <= 100


def test_without_a_place_for_its_state_a_caller_stays_refused() -> None:
    gate = Gate(
        limits={"tokens": Quota(10, must_seed=True)},
        policies={"default": [("tokens", "caller")]},
        capacity=1,
    )
    seeder = Seeder(gate, "tokens", Ledger(0).load)
    reasons = {seeder.try_admit("default", f"user {n}").reason for n in range(200)}
    assert reasons == {None, "unseeded"}
    assert seeder.load_errors == 0


def test_an_object_and_a_partial_may_load_too() -> None:
    class Loader:
        async def __call__(self, caller: Identity) -> int:
            return 7

    async def load(used: int, caller: Identity) -> int:
        return used

    for loader in (Loader(), functools.partial(load, 7)):
        gate = gate_of_units(10)
        assert asyncio.run(Seeder(gate, "tokens", loader).try_admit_async("default", "alice"))
        assert left(gate) == 3


def test_an_async_load_is_not_for_blocking_code() -> None:
    seeder = Seeder(gate_of_units(), "tokens", Ledger().load_async)
    with pytest.raises(TypeError, match=r"await try_admit_async\(\) instead"):
        seeder.try_admit("default", "alice")


def test_a_key_tells_a_ledger_nothing() -> None:
    gate = gate_of_units()
    seeder: Any = Seeder(gate, "tokens", Ledger().load)
    with pytest.raises(TypeError, match=r"caller must be a str or bytes, .*, not Key"):
        seeder.try_admit("default", gate.key("alice"))


def test_a_bad_seeder_is_an_error_that_names_the_field() -> None:
    gate = Gate(
        limits={"must": Quota(1, must_seed=True), "may": Quota(1), "rate": RateLimit(1)},
        policies={"default": [("must", "shared"), ("may", "caller"), ("rate", "caller")]},
    )
    load = Ledger().load
    bad: list[tuple[str, dict[str, Any], str, str]] = [
        ("may", {}, "limit", "must be a Quota of the gate with must_seed=True"),
        ("rate", {}, "limit", "must be a Quota of the gate with must_seed=True"),
        ("what", {}, "limit", "must be a Quota of the gate with must_seed=True"),
        ("must", {}, "scope", "kept by 'caller' in all policies.*'default' keeps it by 'shared'"),
        ("must", {"on_error": "admit"}, "on_error", "'refuse' or 'zero', not 'admit'"),
    ]
    for limit, options, field, message in bad:
        with pytest.raises(ConfigError, match=message) as raised:
            Seeder(gate, limit, load, **options)
        assert raised.value.field == field
    for retry_after in ("soon", -1):
        with pytest.raises(ConfigError, match="retry_after"):
            Seeder(gate_of_units(), "tokens", load, retry_after=retry_after)
    with pytest.raises(TypeError, match="load must be a function of a caller, not int"):
        UNTYPED(gate_of_units(), "tokens", 5)
