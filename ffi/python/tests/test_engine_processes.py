"""Processes that are forked after a gate was made share its limits, unless its memory is
private."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

import callgate.gate
from callgate import Gate, RateLimit
from engine_support import admitted, gate_of, in_child, remaining


def test_what_a_forked_child_charges_its_parent_sees() -> None:
    gate = gate_of()
    assert in_child(lambda: admitted(gate, 10)) == 10
    assert remaining(gate) == 50


def test_what_the_parent_charges_a_forked_child_sees() -> None:
    gate = gate_of()
    admitted(gate, 20)
    assert in_child(lambda: remaining(gate)) == 40


def test_siblings_share_one_bucket_and_admit_its_burst_together() -> None:
    gate = gate_of(burst=50)
    assert [in_child(lambda: admitted(gate, 20)) for _ in range(4)] == [20, 20, 10, 0]


def test_a_gate_outlives_the_process_that_made_it() -> None:
    gate = gate_of()

    def leave_a_grandchild() -> int:
        return in_child(lambda: admitted(gate, 5))

    assert in_child(leave_a_grandchild) == 5
    assert remaining(gate) == 55


def test_private_memory_is_copied_by_a_fork() -> None:
    gate = gate_of(memory="private")
    admitted(gate, 20)
    assert in_child(lambda: remaining(gate)) == 40
    assert in_child(lambda: admitted(gate, 10)) == 10
    assert remaining(gate) == 40


def test_decisions_of_children_are_counted() -> None:
    gate = gate_of(burst=5)
    in_child(lambda: admitted(gate, 8))
    decisions = gate.stats(now_ns=0).decisions
    assert decisions == {("default", None, None): 5, ("default", "rate", "rate"): 3}


def test_a_child_reconfigures_for_all() -> None:
    gate = gate_of(burst=60)

    def lower() -> int:
        gate.reconfigure("rate", RateLimit(1, burst=2), now_ns=0)
        return 0

    in_child(lower)
    assert admitted(gate, 10) == 2


def test_a_child_may_settle_what_its_parent_admitted() -> None:
    gate = gate_of()
    permit = gate.try_admit("default", "alice", cost=10, now_ns=0).permit
    assert permit is not None

    def cancel() -> int:
        return int(gate.settle(permit, "cancelled", now_ns=0) == "ok")

    assert in_child(cancel) == 1
    assert remaining(gate) == 60


def _hammer(gate: Gate, key: Any, attempts: int, results: Any) -> None:
    results.put(sum(gate.try_admit("default", key, now_ns=0).admitted for _ in range(attempts)))


def test_workers_of_multiprocessing_hammering_one_key_admit_exactly_its_burst() -> None:
    context = multiprocessing.get_context("fork")
    gate = gate_of(burst=10_000)
    results = context.SimpleQueue()
    key = gate.key("alice")
    workers = [context.Process(target=_hammer, args=(gate, key, 4_000, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(results.get() for _ in workers) == 10_000


def test_where_memory_cant_be_shared_a_gate_says_so_and_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callgate.gate, "IS_LOCK_FREE", False)
    with pytest.warns(RuntimeWarning, match="forked workers won't share") as warned:
        gate = gate_of()
    assert warned[0].filename.endswith("engine_support.py"), "it points to who made the gate"
    in_child(lambda: admitted(gate, 10))
    assert remaining(gate) == 60
