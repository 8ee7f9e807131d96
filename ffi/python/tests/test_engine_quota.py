"""Quotas: what was used is charged to the day of its call, in the user's time zone."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from callgate import OFF, CallError, Decision, Gate, Permit, Quota, RateLimit, Refused
from engine_support import SECOND_NS, in_child

HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS


def gate_of_units(limit: int = 10, **options: object) -> Gate:
    """A gate of one quota, `tokens`, kept by caller."""
    return Gate(
        limits={"tokens": Quota(limit, **options)},  # type: ignore[arg-type]
        policies={"default": [("tokens", "caller")]},
        capacity=16,
    )


def unix_ns(zone: str, text: str) -> int:
    """The instant that a clock on the wall of that zone shows."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND_NS


def ask(gate: Gate, at_ns: int, reserve: int = 0, caller: str = "alice") -> Decision:
    return gate.try_admit("default", caller, reserve=reserve, now_ns=0, unix_ns=at_ns)


def take(gate: Gate, at_ns: int, reserve: int = 0) -> Permit:
    permit = ask(gate, at_ns, reserve).permit
    assert permit is not None
    return permit


def left(gate: Gate, at_ns: int, caller: str = "alice") -> int:
    return gate.peek("default", caller, now_ns=0, unix_ns=at_ns)[0].remaining


def settle(gate: Gate, permit: Permit, used: int, at_ns: int, outcome: str = "success") -> str:
    return gate.settle(permit, outcome, used, 0, at_ns)  # type: ignore[arg-type]


def test_what_was_used_refuses_the_next_call_and_may_overdraw() -> None:
    gate = gate_of_units(10)
    noon = DAY_NS // 2
    assert settle(gate, take(gate, noon), 12, noon) == "ok"
    refused = ask(gate, noon + SECOND_NS)
    assert (refused.reason, refused.by, refused.remaining) == ("quota", "tokens", 0)
    assert refused.retry_after_ns == refused.reset_after_ns == noon - SECOND_NS
    assert ask(gate, DAY_NS - 1).retry_after_ns == 1
    assert ask(gate, DAY_NS).remaining == 10


def test_a_reserve_is_set_aside_until_the_true_use_is_known() -> None:
    gate = gate_of_units(10)
    permit = take(gate, 0, reserve=8)
    assert ask(gate, 0, reserve=3).reason == "quota"
    assert left(gate, 0) == 2
    settle(gate, permit, 1, 0)
    assert left(gate, 0) == 9
    assert ask(gate, 0, reserve=11).reason == "never"


@pytest.mark.parametrize(
    ("outcome", "used", "remaining"),
    [
        ("success", 3, 7),
        ("failure", 3, 7),
        ("abandoned", 3, 7),
        ("abandoned", 0, 4),
        ("success", 0, 10),
        ("cancelled", 3, 10),
    ],
)
def test_every_outcome_is_charged_as_it_should_be(outcome: str, used: int, remaining: int) -> None:
    gate = gate_of_units(10)
    settle(gate, take(gate, 0, reserve=6), used, 0, outcome)
    assert left(gate, 0) == remaining


def test_a_block_tells_what_it_used() -> None:
    gate = gate_of_units(100)
    with gate.admit("default", "alice", now_ns=0, unix_ns=0) as call:
        call.used(20)
        call.used(30)
    with pytest.raises(ValueError), gate.admit("default", "alice", now_ns=0, unix_ns=0) as call:
        call.used(5)
        raise ValueError
    assert left(gate, 0) == 65


def test_a_block_that_never_tells_what_it_used_pays_what_it_reserved() -> None:
    gate = gate_of_units(100)
    with gate.admit("default", "alice", reserve=10, now_ns=0, unix_ns=0):
        pass
    assert left(gate, 0) == 90
    with pytest.raises(ValueError), gate.admit("default", "alice", reserve=10, now_ns=0, unix_ns=0):
        raise ValueError
    assert left(gate, 0) == 80
    with gate.admit("default", "alice", reserve=10, now_ns=0, unix_ns=0) as call:
        call.used(0)
    assert left(gate, 0) == 80
    with gate.admit("default", "alice", reserve=10, now_ns=0, unix_ns=0) as call:
        call.cancel()
    assert left(gate, 0) == 80
    gate.admit("default", "alice", reserve=10, now_ns=0, unix_ns=0)
    assert left(gate, 0) == 70


def test_a_client_that_disconnects_pays_what_was_reserved_or_said() -> None:
    gate = gate_of_units(100)

    async def serve(used: int | None) -> None:
        async with gate.admit("default", "alice", reserve=40, now_ns=0, unix_ns=0) as call:
            if used is not None:
                call.used(used)
            await asyncio.sleep(60)

    async def disconnect(used: int | None) -> None:
        task = asyncio.ensure_future(serve(used))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(disconnect(None))
    assert left(gate, 0) == 60
    asyncio.run(disconnect(7))
    assert left(gate, 0) == 53


def test_two_tasks_of_one_user_around_midnight_are_charged_to_their_own_days() -> None:
    zone = "Asia/Shanghai"
    gate = gate_of_units(10, tz=zone)
    late, early = unix_ns(zone, "2026-05-01T23:59:59"), unix_ns(zone, "2026-05-02T00:00:01")
    of_yesterday = take(gate, late, reserve=10)
    assert ask(gate, late).reset_after_ns == SECOND_NS
    of_today = take(gate, early, reserve=4)
    assert settle(gate, of_yesterday, 9, early + SECOND_NS) == "ok"
    assert left(gate, early) == 6
    assert settle(gate, of_today, 5, early + SECOND_NS) == "ok"
    assert left(gate, early) == 5


def test_a_settlement_after_midnight_does_not_touch_the_new_day() -> None:
    zone = "America/New_York"
    gate = gate_of_units(10, tz=zone)
    late, early = unix_ns(zone, "2026-05-01T23:59:59"), unix_ns(zone, "2026-05-02T00:00:00")
    permit = take(gate, late, reserve=10)
    assert settle(gate, permit, 500, early) == "ok"
    assert left(gate, early) == 10
    assert ask(gate, early, reserve=10)


def test_a_settlement_just_before_midnight_is_of_the_old_day() -> None:
    zone = "Europe/Berlin"
    gate = gate_of_units(10, tz=zone)
    late = unix_ns(zone, "2026-05-01T23:59:59")
    settle(gate, take(gate, late - SECOND_NS), 10, late)
    assert ask(gate, late).retry_after_ns == SECOND_NS
    assert ask(gate, late + SECOND_NS).remaining == 10


DAYS = [
    ("Europe/Berlin", "2026-03-28", "2026-03-29", 24),
    ("Europe/Berlin", "2026-03-29", "2026-03-30", 23),
    ("Europe/Berlin", "2026-03-30", "2026-03-31", 24),
    ("Europe/Berlin", "2026-10-25", "2026-10-26", 25),
    ("Europe/Berlin", "2026-10-26", "2026-10-27", 24),
    ("America/New_York", "2026-03-08", "2026-03-09", 23),
    ("America/New_York", "2026-11-01", "2026-11-02", 25),
    ("America/New_York", "2026-11-02", "2026-11-03", 24),
    ("Asia/Kathmandu", "2026-07-01", "2026-07-02", 24),
    # Where the clock is moved at midnight itself, a day begins at 01:00, or at the first midnight.
    ("Africa/Cairo", "2026-04-24", "2026-04-25", 23),
    ("Africa/Cairo", "2026-10-29", "2026-10-30", 25),
    ("America/Havana", "2026-11-01", "2026-11-02", 25),
]


@pytest.mark.parametrize(("zone", "day", "next_day", "hours"), DAYS)
def test_a_day_is_as_long_as_the_zone_makes_it(
    zone: str, day: str, next_day: str, hours: int
) -> None:
    gate = gate_of_units(10, tz=zone)
    start, end = unix_ns(zone, f"{day}T00:00:00"), unix_ns(zone, f"{next_day}T00:00:00")
    assert end - start == hours * HOUR_NS
    before = ask(gate, start - 1)
    assert (before.remaining, before.reset_after_ns) == (10, 1)
    first = ask(gate, start, reserve=10)
    assert (first.admitted, first.reset_after_ns) == (True, hours * HOUR_NS)
    for at_ns in range(start, end, HOUR_NS):
        assert ask(gate, at_ns).retry_after_ns == end - at_ns
    assert ask(gate, end - 1).retry_after_ns == 1
    assert ask(gate, end).remaining == 10


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_every_day_of_a_year_ends_at_the_midnight_of_its_zone(zone: str) -> None:
    gate = gate_of_units(10, tz=zone)
    day = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone))
    for n in range(365):
        today, tomorrow = day + timedelta(days=n), day + timedelta(days=n + 1)
        start, end = (int(d.timestamp()) * SECOND_NS for d in (today, tomorrow))
        noon = start + 12 * HOUR_NS
        # One caller calls at noon, the other at the last moment only.
        assert ask(gate, noon, 10).reset_after_ns == end - noon
        assert ask(gate, end - 1, caller=f"late {n % 3}").reset_after_ns == 1


def test_a_clock_that_jumps_far_ahead_finds_the_right_day() -> None:
    zone = "Europe/Berlin"
    gate = gate_of_units(10, tz=zone)
    for text, hours in (("2026-03-29T00:00:00", 23), ("2026-10-25T00:00:00", 25)):
        assert ask(gate, unix_ns(zone, text)).reset_after_ns == hours * HOUR_NS


def test_a_clock_that_steps_back_over_midnight_mints_nothing() -> None:
    zone = "Europe/Berlin"
    gate = gate_of_units(10, tz=zone)
    midnight = unix_ns(zone, "2026-05-02T00:00:00")
    assert ask(gate, midnight + SECOND_NS, reserve=10)
    assert ask(gate, midnight - SECOND_NS).reason == "quota"
    assert ask(gate, midnight + SECOND_NS).reason == "quota"
    assert ask(gate, midnight - SECOND_NS, caller="bob").reset_after_ns == SECOND_NS


def test_by_the_systems_clock_a_day_ends_at_the_next_midnight_too() -> None:
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        gate = gate_of_units(10, tz=zone)
        now = datetime.now(ZoneInfo(zone))
        tomorrow = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), now.tzinfo)
        expected = (tomorrow.timestamp() - now.timestamp()) % (26 * 3600)
        with gate.admit("default", "alice") as call:
            call.used(10)
        with pytest.raises(Refused) as raised:
            gate.admit("default", "alice")
        assert abs(raised.value.retry_after_ns / SECOND_NS - expected) < 5


def test_a_tzinfo_is_a_zone_too() -> None:
    gate = gate_of_units(10, tz=timezone(timedelta(hours=8)))
    assert ask(gate, 0).reset_after_ns == 16 * HOUR_NS
    assert gate_of_units(10, tz=ZoneInfo("Asia/Shanghai")).limits == gate_of_units(
        10, tz="Asia/Shanghai"
    ).limits  # fmt: skip


def test_several_zones_in_one_gate_do_not_mix() -> None:
    zones = {"berlin": "Europe/Berlin", "tokyo": "Asia/Tokyo", "utc": None}
    gate = Gate(
        limits={name: Quota(10, tz=zone) for name, zone in zones.items()},
        policies={name: [(name, "caller")] for name in zones},
    )
    at_ns = unix_ns("UTC", "2026-05-01T12:00:00")
    for name, hours in (("berlin", 10), ("tokyo", 3), ("utc", 12), ("berlin", 10)):
        decision = gate.try_admit(name, "alice", now_ns=0, unix_ns=at_ns)
        assert decision.reset_after_ns == hours * HOUR_NS
    later = at_ns + 11 * HOUR_NS
    for name, hours in (("tokyo", 16), ("berlin", 23), ("utc", 1)):
        decision = gate.try_admit(name, "bob", now_ns=0, unix_ns=later)
        assert decision.reset_after_ns == hours * HOUR_NS


class Broken(tzinfo):
    """A zone that fails."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        raise OSError("no such offset")

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "broken"


def test_a_zone_that_fails_is_an_error_and_charges_nothing() -> None:
    gate = gate_of_units(10, tz=Broken())
    for _ in range(2):
        with pytest.raises(OSError, match="no such offset"):
            ask(gate, 0)
    assert gate.stats(0, 0).decisions["default", None, None] == 0


def test_windows_of_any_length_begin_at_their_anchor() -> None:
    gate = gate_of_units(10, per="1h", anchor_unix_s=-600)
    assert ask(gate, 0).reset_after_ns == 50 * 60 * SECOND_NS
    assert ask(gate_of_units(10, per=7 * SECOND_NS), 8 * SECOND_NS).reset_after_ns == 6 * SECOND_NS


UNIX_IS_MISSING = "unix_ns is missing: this gate has a quota"


def test_a_time_of_ours_is_both_clocks_where_there_is_a_quota() -> None:
    gate = gate_of_units(10)
    permit = take(gate, 0)
    for call in (
        lambda: gate.try_admit("default", "alice", now_ns=0),
        lambda: gate.admit("default", "alice", now_ns=0),
        lambda: gate.peek("default", "alice", now_ns=0),
        lambda: gate.settle(permit, now_ns=0),
        lambda: gate.seed("tokens", "alice", 1, now_ns=0),
        lambda: gate.stats(now_ns=0),
        lambda: gate.metrics(now_ns=0),
    ):
        with pytest.raises(CallError, match=UNIX_IS_MISSING) as raised:
            call()
        assert raised.value.field == "unix_ns"
    assert settle(gate, permit, 0, 0) == "ok"


def test_a_limit_that_becomes_a_quota_asks_for_both_clocks_from_then_on() -> None:
    gate = Gate(limits={"tokens": OFF}, policies={"default": [("tokens", "caller")]})
    assert gate.try_admit("default", "alice", now_ns=0)
    gate.reconfigure("tokens", Quota(10, tz="Asia/Tokyo"), now_ns=0)
    with pytest.raises(CallError, match=UNIX_IS_MISSING):
        gate.try_admit("default", "alice", now_ns=0)
    assert ask(gate, 0).reset_after_ns == 15 * HOUR_NS


def test_a_changed_quota_keeps_what_was_used() -> None:
    zone = "Asia/Tokyo"
    gate = gate_of_units(10, tz=zone)
    noon = unix_ns(zone, "2026-05-01T12:00:00")
    settle(gate, take(gate, noon), 8, noon)
    gate.reconfigure("tokens", Quota(20, tz=zone), now_ns=0)
    assert left(gate, noon) == 12
    gate.reconfigure("tokens", Quota(5, tz=zone), now_ns=0)
    assert ask(gate, noon).reason == "quota"
    gate.reconfigure("tokens", OFF, now_ns=0)
    assert ask(gate, noon, reserve=1000)
    gate.reconfigure("tokens", Quota(10, tz=zone), now_ns=0)
    assert left(gate, noon) == 2
    assert left(gate, noon + 12 * HOUR_NS) == 10


def test_another_zone_is_followed_from_its_next_midnight_on() -> None:
    gate = gate_of_units(10, tz="Asia/Tokyo")
    noon = unix_ns("Asia/Tokyo", "2026-05-01T12:00:00")
    assert ask(gate, noon)
    gate.reconfigure("tokens", Quota(10, tz="Europe/Berlin"), now_ns=0)
    midnight = unix_ns("Europe/Berlin", "2026-05-02T00:00:00")
    assert ask(gate, midnight, caller="bob").reset_after_ns == DAY_NS
    assert ask(gate, midnight + DAY_NS, caller="alice").reset_after_ns == DAY_NS


def test_a_zone_that_another_process_has_changed_to_a_period_stops_nobody() -> None:
    gate = gate_of_units(10, tz="Asia/Tokyo")

    def change() -> int:
        gate.reconfigure("tokens", Quota(10, per="1h"), now_ns=0)
        return 0

    in_child(change)
    assert ask(gate, 0).reset_after_ns == HOUR_NS
    assert ask(gate, DAY_NS).reset_after_ns == HOUR_NS


def test_a_seed_tells_what_was_used_once_a_window() -> None:
    gate = gate_of_units(10, must_seed=True)
    refused = ask(gate, 0)
    assert (refused.reason, refused.retry_after_ns) == ("unseeded", 0)
    assert gate.seed("tokens", "alice", 7, now_ns=0, unix_ns=0) is True
    assert gate.seed("tokens", "alice", 7, now_ns=0, unix_ns=0) is False
    assert left(gate, 0) == 3
    assert ask(gate, 0, caller="bob").reason == "unseeded"
    assert ask(gate, DAY_NS).reason == "unseeded"
    assert gate.seed("tokens", "alice", 0, now_ns=0, unix_ns=DAY_NS) is True
    assert left(gate, DAY_NS) == 10


def test_a_seed_adds_to_what_was_used_since_the_restart() -> None:
    gate = gate_of_units(10)
    settle(gate, take(gate, 0), 2, 0)
    assert gate.seed("tokens", gate.key("alice"), 5, now_ns=0, unix_ns=0) is True
    assert left(gate, 0) == 3


def test_a_seed_is_of_the_day_in_the_zone() -> None:
    zone = "Asia/Shanghai"
    gate = gate_of_units(10, tz=zone, must_seed=True)
    late = unix_ns(zone, "2026-05-01T23:59:59")
    assert gate.seed("tokens", "alice", 10, now_ns=0, unix_ns=late) is True
    assert ask(gate, late).retry_after_ns == SECOND_NS
    assert ask(gate, late + SECOND_NS).reason == "unseeded"


def test_a_seed_by_scope_fills_in_the_state_of_that_scope() -> None:
    gate = Gate(
        limits={"tokens": Quota(10), "rate": RateLimit(1)},
        policies={
            "own": [("tokens", "caller")],
            "all": [("tokens", "shared")],
            "pair": [("tokens", "caller_tool")],
        },
    )
    with pytest.raises(CallError, match=r"scope is missing: .*'caller', 'shared', 'caller_tool'"):
        gate.seed("tokens", "alice", 1)
    with pytest.raises(CallError, match="scope can't be 'tool'"):
        gate.seed("tokens", "alice", 1, scope="tool")
    assert gate.seed("tokens", "alice", 1, scope="caller")
    assert gate.seed("tokens", None, 2, scope="shared")
    assert gate.seed("tokens", "alice", 3, tool="search", scope="caller_tool")
    for policy, remaining in (("own", 9), ("all", 8), ("pair", 7)):
        assert gate.peek(policy, "alice", "search")[0].remaining == remaining


def test_a_bad_seed_is_an_error_that_names_the_argument() -> None:
    gate = Gate(
        limits={"tokens": Quota(10), "rate": RateLimit(1), "spare": Quota(10)},
        policies={"default": [("tokens", "caller"), ("rate", "caller")]},
        capacity=1,
    )
    for limit, caller, used, message in (
        ("token", "alice", 1, r"limit: limit 'token' is unknown; this gate has 'tokens', 'rate'"),
        ("rate", "alice", 1, "limit: 'rate' is no Quota; of these this gate has 'tokens'"),
        ("spare", "alice", 1, "limit 'spare' is in no policy"),
        ("tokens", None, 1, "caller is absent"),
        ("tokens", "", 1, "caller: an empty identity"),
        ("tokens", "alice", -1, r"used must be 0 to 2\^64-1 units"),
        ("tokens", "alice", 2**64, r"used must be 0 to 2\^64-1 units"),
    ):
        with pytest.raises(CallError, match=message):
            gate.seed(limit, caller, used)
    with pytest.raises(TypeError, match="used must be an int, not float"):
        gate.seed("tokens", "alice", 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="limit must be a str, not NoneType"):
        gate.seed(None, "alice", 1)  # type: ignore[arg-type]


def test_a_seed_without_a_place_for_it_says_so() -> None:
    gate = Gate(
        limits={"tokens": Quota(10)}, policies={"default": [("tokens", "caller")]}, capacity=1
    )
    with pytest.raises(CallError, match="no place for the state of a new caller"):
        for n in range(1000):
            gate.seed("tokens", f"user {n}", 1)


def test_threads_that_cross_midnight_together_charge_two_days_exactly() -> None:
    zone = "Europe/Berlin"
    gate = gate_of_units(1000, tz=zone)
    midnight = unix_ns(zone, "2026-03-29T00:00:00")
    counts: list[tuple[int, int]] = []

    def call() -> None:
        days = [0, 0]
        for n in range(2000):
            day = n // 1000
            at_ns = midnight + (day * 2 - 1) * (1000 - n % 1000) * 1000
            days[day] += ask(gate, at_ns, 1).admitted
        counts.append((days[0], days[1]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 4
    assert sum(map(sum, counts)) <= 2000
    assert left(gate, midnight) == 0
    assert ask(gate, midnight).retry_after_ns == 23 * HOUR_NS


class Counting(Gate):
    """A gate that counts how often it looks at the calendar."""

    rolls = 0

    def _roll(self, unix_s: int) -> None:
        self.rolls += 1
        super()._roll(unix_s)


def test_the_calendar_is_looked_at_once_a_day_and_not_for_every_call() -> None:
    gate = Counting(
        limits={"tokens": Quota(10, tz="Asia/Tokyo"), "rate": RateLimit(1)},
        policies={"default": [("tokens", "caller"), ("rate", "caller")]},
    )
    midnight = unix_ns("Asia/Tokyo", "2026-05-01T00:00:00")
    for minute in range(1, 3 * 24 * 60):
        ask(gate, midnight + minute * 60 * SECOND_NS)
    assert gate.rolls == 4
