"""Threads over-admit nothing, floods take no memory, and nothing leaks."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from callgate import (
    CallError,
    ConcurrencyLimit,
    ConfigError,
    Gate,
    Quota,
    RateLimit,
    Refused,
    Seeder,
)
from engine_support import admitted, gate_of, mapped_bytes, remaining, resident_bytes


@pytest.fixture
def _threads_switch_often() -> object:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_switch_often")
def test_threads_hammering_one_key_admit_exactly_its_burst() -> None:
    gate = gate_of(burst=5_000)
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(admitted(gate, 2_000))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 8 and sum(counts) == 5_000


@pytest.mark.usefixtures("_threads_switch_often")
def test_threads_may_reconfigure_and_count_while_others_admit() -> None:
    gate = gate_of(count=1, burst=3_000, capacity=100)
    counts: list[int] = []
    errors: list[Exception] = []

    def disturb() -> None:
        try:
            for _ in range(300):
                gate.reconfigure("rate", RateLimit(1, burst=3_000), now_ns=0)
                gate.stats(now_ns=0)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=disturb) for _ in range(2)]
    threads += [
        threading.Thread(target=lambda: counts.append(admitted(gate, 1_000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(counts) == 3_000


def test_a_million_rotating_callers_take_no_memory_and_lose_no_drained_bucket() -> None:
    gate = gate_of(count=1, burst=1, capacity=10_000)
    assert gate.try_admit("default", "alice", now_ns=0)
    before = resident_bytes()
    verdicts: dict[str | None, int] = {}
    for n in range(1_000_000):
        reason = gate.try_admit("default", n.to_bytes(4, "little"), now_ns=0).reason
        verdicts[reason] = verdicts.get(reason, 0) + 1
    assert resident_bytes() - before < 1 << 20
    slots = gate.stats(now_ns=0).slots
    assert verdicts.keys() == {None, "table_full"}
    assert 10_000 <= verdicts[None] + 1 <= slots
    assert gate.try_admit("default", "alice", now_ns=0).reason == "rate"


def everything_once() -> None:
    gate = Gate(
        limits={"rate": RateLimit(30, burst=60)},
        policies={"default": [("rate", "caller")], "tools": [("rate", "caller_tool")]},
        capacity=16,
    )
    key = gate.key("alice")
    for decision in (
        gate.try_admit("default", key, now_ns=0),
        gate.try_admit("tools", b"alice", "searchß", cost=2, reserve=1, now_ns=0, unix_ns=0),
        gate.try_admit("default", "alice", cost=61, now_ns=0),
    ):
        repr(decision), decision.reason, decision.by, decision.permit, decision.reset_after_ns
        if decision.permit is not None:
            gate.settle(decision.permit, "cancelled", 1, 0, 0)
            gate.settle(decision.permit)
    with gate.admit("default", key) as call:
        call.cancel()
    gate.peek("tools", "alice", "search")
    gate.stats()
    gate.reconfigure("rate", RateLimit(1))
    repr(key), hash(key), key == gate.key("bob"), key == 1
    everything_that_fails(gate)


def every_kind_once() -> None:
    gate = Gate(
        limits={
            "tokens": Quota(100, tz="Europe/Berlin", must_seed=True),
            "server": ConcurrencyLimit(2, lease="1s", reject_trip=1, cooldown="1s"),
        },
        policies={"default": [("tokens", "caller"), ("server", "shared")]},
        capacity=16,
    )
    seeder = Seeder(gate, "tokens", lambda caller: 3)
    with seeder.admit("default", "alice") as call:
        call.used(1)
    gate.admit("default", "alice")  # settled when it is gone
    gate.seed("tokens", "bob", 5), gate.seed("tokens", "bob", 5)
    permits = [
        gate.try_admit("default", "bob", now_ns=0, unix_ns=n * 10**14).permit for n in (0, 9)
    ]
    for permit in permits:
        if permit is not None:
            gate.settle(permit, now_ns=10**10, unix_ns=0)
    gate.try_admit("default", "bob", reserve=101)
    gate.metrics(), gate.guards("server")
    gate.reconfigure("tokens", Quota(50, tz="Asia/Tokyo", must_seed=True))
    failing: list[Callable[[], object]] = [
        lambda: gate.try_admit("default", "bob", now_ns=0),
        lambda: gate.seed("tokens", "", 5),
        lambda: gate.seed("tokens", "bob", -1),
        lambda: gate.seed("server", "bob", 1),
        lambda: gate.guards("tokens"),
        lambda: gate._seed(0, 0, "bob", None, 1, None, None),
        lambda: gate._set_windows([(0, 5, 5)], 0, 1),
        lambda: gate._set_windows([(7, 5, 6)], 0, 1),
        lambda: gate._set_windows([5], 0, 1),  # type: ignore[list-item]
        lambda: gate.reconfigure("server", ConcurrencyLimit(1, lease="2s")),
        lambda: ConcurrencyLimit(2**70),
        lambda: Quota(2**70),
    ]
    for fails in failing:
        with pytest.raises((CallError, ConfigError, TypeError)):
            fails()


def everything_that_fails(gate: Gate) -> None:
    other = gate_of(capacity=1)
    permit = other.try_admit("default", "alice").permit
    failing: list[Callable[[], object]] = [
        lambda: gate.try_admit("nobody"),
        lambda: gate.try_admit("default"),
        lambda: gate.try_admit("default", ""),
        lambda: gate.try_admit("default", "\ud800"),
        lambda: gate.try_admit("default", other.key("x")),
        lambda: gate.try_admit("default", 5),  # type: ignore[arg-type]
        lambda: gate.try_admit("default", "x", cost=-1),
        lambda: gate.try_admit("default", "x", cost=1.5),  # type: ignore[arg-type]
        lambda: gate.try_admit("default", "x", now_ns=2**61),
        lambda: gate.try_admit("default", "x", nothing=1),  # type: ignore[call-arg]
        lambda: gate.admit("default", "x", cost=2**63),
        lambda: gate.settle(permit),  # type: ignore[arg-type]
        lambda: gate.key("x", "y"),  # type: ignore[arg-type]
        lambda: gate.__reduce__(),
        lambda: RateLimit(0),
        lambda: Gate(limits={"x": RateLimit(1)}, policies={"x": []}),
        lambda: Gate(limits={"x": RateLimit(1)}, policies={"x": [("x", "tool")]}, secret=b"x"),
        lambda: Gate(limits={"x": RateLimit(1)}, policies={"x": [("x", "tool")]}, capacity=2**40),
    ]
    for call in failing:
        with pytest.raises((CallError, ConfigError, Refused, TypeError)):
            call()


def test_nothing_leaks_on_any_path() -> None:
    for _ in range(300):
        everything_once()
        every_kind_once()
    gc.collect()
    before, mapped = sys.getallocatedblocks(), mapped_bytes()
    for _ in range(1_000):
        everything_once()
        every_kind_once()
    gc.collect()
    # A block that leaks would be 1,000; the interpreter's own caches grow by some dozens.
    assert sys.getallocatedblocks() - before < 500
    assert mapped_bytes() - mapped < 1 << 20


def test_the_hot_path_leaks_no_block_in_many_rounds() -> None:
    gate = gate_of()
    key = gate.key("alice")

    def rounds(count: int) -> None:
        for _ in range(count):
            assert gate.try_admit("default", caller=key, cost=0, now_ns=0).permit is not None

    rounds(1_000)
    before = sys.getallocatedblocks()
    references = [sys.getrefcount(thing) for thing in (gate, key, None, "default", type(key))]
    rounds(100_000)
    after = [sys.getrefcount(thing) for thing in (gate, key, None, "default", type(key))]
    assert abs(sys.getallocatedblocks() - before) < 100
    assert max(abs(a - b) for a, b in zip(after, references, strict=True)) < 50


def test_a_gate_gives_its_memory_back_with_its_last_decision_or_key() -> None:
    before = mapped_bytes()
    gate = gate_of(capacity=1_000_000)
    size = mapped_bytes() - before
    assert size > 1_000_000 * 32
    held = [gate.try_admit("default", "alice", now_ns=0), gate.key("alice")]
    del gate
    assert mapped_bytes() - before > size // 2
    held.clear()
    assert mapped_bytes() - before < size // 2


def test_a_gate_that_keeps_its_own_decision_is_not_kept_by_it() -> None:
    class Keeper(Gate):
        last: object = None

    gate = Keeper(limits={"r": RateLimit(1)}, policies={"p": [("r", "shared")]}, capacity=1)
    decision = gate.try_admit("p", now_ns=0)
    gate.last = [decision, decision.permit, gate.key("x")]
    alive = weakref.ref(gate)
    gc.disable()
    try:
        del gate, decision
        assert alive() is None
    finally:
        gc.enable()


def test_a_flood_on_one_caller_refuses_no_other() -> None:
    gate = gate_of(burst=5)
    admitted(gate, 100_000, "flood")
    assert remaining(gate, "alice") == 5
    assert admitted(gate, 5, "alice") == 5
