"""Every bad configuration is an error that names the field and what is allowed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from callgate import OFF, ConcurrencyLimit, ConfigError, Gate, Quota, RateLimit
from callgate.durations import duration_text
from engine_support import gate_of

LIMIT = RateLimit(30, burst=60)
UNTYPED: Any = RateLimit
"""The class, for calls that a type checker would refuse."""


def gate(**changes: Any) -> Gate:
    options: dict[str, Any] = {"limits": {"rate": LIMIT}, "policies": {"p": [("rate", "caller")]}}
    return Gate(**{**options, **changes})


def policy(*rules: Any) -> Callable[[], Gate]:
    return lambda: gate(policies={"fine": [("rate", "caller")], "broken": list(rules)})


def places(count: Any = 1, **options: Any) -> ConcurrencyLimit:
    return ConcurrencyLimit(count, **options)


def units(limit: Any, **options: Any) -> Quota:
    return Quota(limit, **options)


class Twice(str):
    """Names that are told apart though they read the same."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


TOO_MANY_LIMITS = {f"l{n}": LIMIT for n in range(65)}
NINE_LIMITS = {f"l{n}": LIMIT for n in range(9)}
MS = 1_000_000
YEARS_74 = 74 * 365 * 86_400 * 10**9

BAD: list[tuple[str, Callable[[], object], str, str | None, str]] = [
    ("zero tokens", lambda: RateLimit(0), "count", None, "1 to 2^64-1 tokens"),
    ("negative tokens", lambda: RateLimit(-1), "count", None, "1 to 2^64-1 tokens"),
    ("too many tokens", lambda: RateLimit(2**64, burst=1), "count", None, "1 to 2^64-1 tokens"),
    ("zero period", lambda: RateLimit(1, per=0), "period_ns", None, "1 to 2^64-1 ns"),
    ("zero seconds", lambda: RateLimit(1, per="0s"), "period_ns", None, "1 to 2^64-1 ns"),
    ("negative period", lambda: RateLimit(1, per=-1), "period_ns", None, "1 to 2^64-1 ns"),
    ("endless period", lambda: RateLimit(1, per="9999999w"), "period_ns", None, "1 to 2^64-1 ns"),
    ("no duration", lambda: RateLimit(1, per="soon"), "period_ns", None, "'250ms'"),
    ("zero burst", lambda: RateLimit(1, burst=0), "burst", None, "1 or more tokens"),
    ("negative burst", lambda: RateLimit(1, burst=-5), "burst", None, "1 or more tokens"),
    ("great burst", lambda: RateLimit(1, burst=2**64), "burst", None, "1 or more tokens"),
    ("slow bucket", lambda: RateLimit(1, per=YEARS_74), "burst", None, "at most 2^61 ns"),
    ("no places", lambda: ConcurrencyLimit(0), "max_in_flight", None, "1 to 4095 calls"),
    ("negative places", lambda: ConcurrencyLimit(-1), "max_in_flight", None, "1 to 4095 calls"),
    ("4096 places", lambda: ConcurrencyLimit(4096), "max_in_flight", None, "1 to 4095 calls"),
    ("2^32+1 places", lambda: places(count=2**32 + 1), "max_in_flight", None, "1 to 4095 calls"),
    ("short lease", lambda: places(lease="999us"), "lease_ns", None, "1 ms to 2^61 ns"),
    ("long lease", lambda: places(lease=2**61 + 1), "lease_ns", None, "1 ms to 2^61 ns"),
    ("no lease", lambda: places(lease="soon"), "lease_ns", None, "'250ms'"),
    ("rejections", lambda: places(reject_trip=64, cooldown=MS), "reject_trip", None, "0 to 63"),
    ("failures", lambda: places(failure_trip=64, cooldown=MS), "failure_trip", None, "0 to 63"),
    ("less failures", lambda: places(failure_trip=-1), "failure_trip", None, "0 to 63"),
    ("no cooldown", lambda: places(reject_trip=1), "cooldown_ns", None, "1 ms or more where"),
    ("short cooldown", lambda: places(failure_trip=1, cooldown=MS - 1), "cooldown_ns", None,
     "1 ms or more where there is a trip"),
    ("long cooldown", lambda: places(lease=MS, reject_trip=1, cooldown=50_001 * MS), "cooldown_ns",
     None, "50,000 leases"),
    ("probes", lambda: places(half_open_probes=16), "half_open_probes", None, "0 to 15"),
    ("no units", lambda: Quota(0), "limit", None, "1 to 2^47 units"),
    ("negative units", lambda: Quota(-50_000), "limit", None, "1 to 2^47 units"),
    ("too many units", lambda: Quota(2**47 + 1), "limit", None, "1 to 2^47 units"),
    ("no window", lambda: Quota(1, per=0), "period_s", None, "1 to 2^33 whole seconds"),
    ("half a second", lambda: Quota(1, per="500ms"), "period_s", None, "1 to 2^33 whole seconds"),
    ("endless window", lambda: Quota(1, per=(2**33 + 1) * 10**9), "period_s", None, "1 to 2^33"),
    ("a week in a zone", lambda: Quota(1, per="1w", tz="UTC"), "period_s", None, "must be '1d'"),
    ("unknown zone", lambda: Quota(1, tz="Europe/Atlantis"), "tz", None, "IANA name"),
    ("empty zone", lambda: Quota(1, tz=""), "tz", None, "IANA name"),
    ("a path as zone", lambda: Quota(1, tz="../../etc/passwd"), "tz", None, "IANA name"),
    ("an anchor in a zone", lambda: Quota(1, tz="UTC", anchor_unix_s=1), "anchor_unix_s", None,
     "must be 0 where there is a tz"),
    ("a far anchor", lambda: Quota(1, anchor_unix_s=2**63), "anchor_unix_s", None, "2^63-1 s"),
    ("no capacity", lambda: gate(capacity=0), "capacity", None, "1 to 67108864"),
    ("negative capacity", lambda: gate(capacity=-1), "capacity", None, "1 to 67108864"),
    ("great capacity", lambda: gate(capacity=2**26 + 1), "capacity", None, "1 to 67108864"),
    ("huge capacity", lambda: gate(capacity=2**70), "capacity", None, "1 to 67108864"),
    ("32 bits and one", lambda: gate(capacity=2**32 + 1), "capacity", None, "1 to 67108864"),
    ("short secret", lambda: gate(secret=b"x" * 15), "secret", None, "16 random bytes"),
    ("long secret", lambda: gate(secret=b"x" * 17), "secret", None, "16 random bytes"),
    ("zero secret", lambda: gate(secret=bytes(16)), "secret", None, "not all zero"),
    ("unknown memory", lambda: gate(memory="/x"), "memory", None, "'auto', 'private'"),
    ("no limits", lambda: gate(limits={}, policies={"p": []}), "limits", None, "1 to 64"),
    ("65 limits", lambda: gate(limits=TOO_MANY_LIMITS, policies={"p": [("l0", "tool")]}), "limits",
     None, "1 to 64"),
    ("no policies", lambda: gate(policies={}), "policies", None, "1 to 64"),
    ("65 policies", lambda: gate(policies={f"p{n}": [("rate", "tool")] for n in range(65)}),
     "policies", None, "1 to 64"),
    ("empty limit name", lambda: gate(limits={"": LIMIT}), "limits", None, "1 or more characters"),
    ("empty policy name", lambda: gate(policies={"": [("rate", "tool")]}), "policies", None,
     "1 or more characters"),
    ("half a character", lambda: gate(policies={"\ud800": [("rate", "tool")]}), "policies", None,
     "UTF-8"),
    ("a limit twice", lambda: gate(limits={Twice("rate"): LIMIT, Twice("rate"): OFF}), "limits",
     None, "'rate' is there twice"),
    ("a policy twice",
     lambda: gate(policies={Twice("p"): [("rate", "tool")], Twice("p"): [("rate", "tool")]}),
     "policies", None, "'p' is there twice"),
    ("empty policy", policy(), "rules", "broken", "1 to 8"),
    ("unknown limit", policy(("rates", "caller")), "limit", "broken", "'rate'"),
    ("unknown scope", policy(("rate", "user")), "scope", "broken", "'caller_tool'"),
    ("scope in capitals", policy(("rate", "CALLER")), "scope", "broken", "'caller'"),
    ("a rule twice", policy(("rate", "tool"), ("rate", "caller"), ("rate", "tool")), "rules",
     "broken", "only once"),
    ("nine limits",
     lambda: gate(limits=NINE_LIMITS, policies={"broken": [(n, "caller") for n in NINE_LIMITS]}),
     "rules", "broken", "1 to 8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "field", "policy_name", "allowed"), [b[1:] for b in BAD], ids=[b[0] for b in BAD]
)
def test_a_bad_configuration_names_the_field_and_what_is_allowed(
    make: Callable[[], object], field: str, policy_name: str | None, allowed: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        make()
    assert raised.value.field == field
    assert raised.value.policy == policy_name
    assert allowed in str(raised.value)
    assert policy_name is None or repr(policy_name) in str(raised.value)
    assert isinstance(raised.value, ValueError)


def test_the_engine_has_the_last_word_on_a_limit_and_names_it() -> None:
    broken = RateLimit(1)
    object.__setattr__(broken, "count", 0)
    with pytest.raises(ConfigError, match=r"^limit 'b': count must be 1 to") as raised:
        gate(limits={"rate": LIMIT, "b": broken})
    assert (raised.value.limit, raised.value.field) == ("b", "count")


WRONG_TYPES: list[tuple[str, Callable[[], object], str]] = [
    ("count: float", lambda: UNTYPED(1.5), "count must be an int, not float"),
    ("count: bool", lambda: RateLimit(True), "count must be an int, not bool"),
    ("count: str", lambda: UNTYPED("30"), "count must be an int, not str"),
    ("per: float", lambda: UNTYPED(1, per=0.5), "per must be a str such as"),
    ("per: bool", lambda: RateLimit(1, per=True), "per must be a str such as"),
    ("per: None", lambda: UNTYPED(1, per=None), "per must be a str such as"),
    ("burst: float", lambda: UNTYPED(1, burst=1.0), "burst must be an int, not float"),
    ("places: float", lambda: places(count=3.0), "max_in_flight must be an int, not float"),
    ("lease: float", lambda: places(lease=1.5), "lease must be a str such as '250ms' or an int"),
    ("cooldown: None", lambda: places(cooldown=None), "cooldown must be a str such as"),
    ("trip: bool", lambda: places(reject_trip=True), "reject_trip must be an int, not bool"),
    ("probes: str", lambda: places(half_open_probes="1"), "half_open_probes must be an int"),
    ("units: float", lambda: units(1.0), "limit must be an int, not float"),
    ("per: float, quota", lambda: units(1, per=1.0), "per must be a str such as"),
    ("tz: int", lambda: units(1, tz=8), "tz must be an IANA name .*, not int"),
    ("anchor: float", lambda: units(1, anchor_unix_s=0.5), "anchor_unix_s must be an int"),
    ("must_seed: int", lambda: units(1, must_seed=1), "must_seed must be a bool, not int"),
    ("capacity: float", lambda: gate(capacity=1e4), "capacity must be an int, not float"),
    ("capacity: bool", lambda: gate(capacity=True), "capacity must be an int, not bool"),
    ("secret: str", lambda: gate(secret="x" * 16), "secret must be 16 bytes, not str"),
    ("memory: None", lambda: gate(memory=None), "memory must be a str, not NoneType"),
    ("limits: list", lambda: gate(limits=[LIMIT]), "limits must be a mapping of names, not list"),
    ("limits: int name", lambda: gate(limits={1: LIMIT}), "limits: a name must be a str, not int"),
    ("limit: int", lambda: gate(limits={"rate": 30}), r"limits\['rate'\] must be a RateLimit, "),
    ("policies: None", lambda: gate(policies=None), "policies must be a mapping of names"),
    ("policy: str", lambda: gate(policies={"p": "rate"}), r"policies\['p'\] must be a list"),
    ("policy: None", lambda: gate(policies={"p": None}), r"policies\['p'\] must be a list"),
    ("rule: str", policy("ab"), r"policies\['broken'\]: 'ab' must be a pair"),
    ("rule: one", policy(("rate",)), r"policies\['broken'\]: .* must be a pair"),
    ("rule: three", policy(("rate", "tool", 1)), r"policies\['broken'\]: .* must be a pair"),
    ("rule: int", policy((0, "tool")), r"policies\['broken'\]: .* must be a pair of str"),
]


@pytest.mark.parametrize(
    ("make", "message"), [w[1:] for w in WRONG_TYPES], ids=[w[0] for w in WRONG_TYPES]
)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_a_gate_has_no_default_limits() -> None:
    with pytest.raises(TypeError, match="limits"):
        Gate()  # type: ignore[call-arg]


def test_the_bounds_themselves_are_allowed() -> None:
    RateLimit(2**64 - 1, per=1, burst=2**64 - 1)
    RateLimit(1, per=2**61, burst=1)
    limits = {f"l{n}": LIMIT for n in range(64)}
    eight = [(f"l{n}", "caller") for n in range(8)]
    wide = gate(limits=limits, policies={f"p{n}": eight for n in range(64)}, capacity=1)
    decision = wide.try_admit("p63", "alice", now_ns=0)
    assert decision.remaining == 59
    assert [report.limit_name for report in wide.peek("p63", "alice")] == [n for n, _ in eight]


def test_a_rate_limit_keeps_what_it_was_made_from() -> None:
    limit = RateLimit(30, per="250ms")
    assert (limit.count, limit.period_ns, limit.burst) == (30, 250_000_000, 30)
    assert limit == RateLimit(30, 250_000_000, 30) != RateLimit(30, "1s")
    assert hash(limit) == hash(RateLimit(30, 250_000_000))
    assert repr(limit) == "RateLimit(30, per=250000000, burst=30)"
    with pytest.raises(AttributeError):
        limit.count = 1  # type: ignore[misc]


def test_the_bounds_of_places_and_units_are_allowed() -> None:
    places(1, lease="1ms")
    places(4095, lease=2**61, reject_trip=63, failure_trip=63, cooldown=2**61, half_open_probes=15)
    places(1, lease=MS, reject_trip=1, cooldown=50_000 * MS)
    Quota(1, per="1s", anchor_unix_s=-(2**63))
    Quota(2**47, per=2**33 * 10**9, anchor_unix_s=2**63 - 1)
    Quota(1, tz="Pacific/Kiritimati", must_seed=True)


def test_places_and_units_keep_what_they_were_made_from() -> None:
    guard = ConcurrencyLimit(3, lease="2h", reject_trip=5, cooldown="30s", half_open_probes=1)
    assert (guard.max_in_flight, guard.lease_ns, guard.cooldown_ns) == (3, 7200 * 10**9, 30 * 10**9)
    assert (guard.reject_trip, guard.failure_trip, guard.half_open_probes) == (5, 0, 1)
    assert repr(guard) == (
        "ConcurrencyLimit(3, lease=7200000000000, reject_trip=5, failure_trip=0,"
        " cooldown=30000000000, half_open_probes=1)"
    )
    quota = Quota(50_000, tz="Asia/Shanghai")
    assert (quota.limit, quota.period_s, quota.must_seed) == (50_000, 86_400, False)
    assert repr(quota) == "Quota(50000, tz='Asia/Shanghai', must_seed=False)"
    hourly = Quota(5, per="1h", anchor_unix_s=-600)
    assert repr(hourly) == "Quota(5, per='3600s', anchor_unix_s=-600, must_seed=False)"
    for limit in (guard, quota, hourly):
        assert pickle.loads(pickle.dumps(limit)) == limit
        assert hash(limit) == hash(pickle.loads(pickle.dumps(limit)))
        assert eval(repr(limit)) == limit


def test_limits_can_be_pickled_and_off_stays_one_object() -> None:
    assert pickle.loads(pickle.dumps(LIMIT)) == LIMIT
    assert pickle.loads(pickle.dumps(OFF)) is OFF
    assert repr(OFF) == "callgate.OFF"


def test_errors_survive_pickling() -> None:
    error = ConfigError("text", "scope", limit="l", policy="p")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.field, copy.limit, copy.policy) == ("text", "scope", "l", "p")


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1ns", 1), ("2us", 2_000), ("250ms", 250_000_000), ("1s", 10**9), ("5 m", 300 * 10**9),
        ("2h", 7_200 * 10**9), ("1d", 86_400 * 10**9), ("1w", 604_800 * 10**9),
    ],
)  # fmt: skip
def test_durations_have_units(text: str, ns: int) -> None:
    assert RateLimit(1, per=text).period_ns == ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (1_001, "1.01 us"),
        (33_333_334, "33.4 ms"),
        (20_000_000, "20 ms"),
        (999_000_000, "999 ms"),
        (999_000_001, "1 s"),
        (999_500_000, "1 s"),
        (999_999_999, "1 s"),
        (1_010_000_000, "1.01 s"),
        (9_990_000_001, "10 s"),
        (59_900_000_001, "1 m"),
        (90_000_000_000, "1.5 m"),
        (6_000_000_000_000, "1.67 h"),
        (86_399_999_999_999, "1 d"),
        (90_000_000_000_000, "1.05 d"),
        (1_000 * 86_400_000_000_000, "1000 d"),
        (2**61, "26700 d"),
    ],
)
def test_a_duration_is_told_in_three_digits_and_never_too_short(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@pytest.mark.parametrize(
    "text", ["", "1", "s", "1.5s", "-1s", "1S", "1 sec", "1h30m", " 1s", "1s\n", "\u0661s", "1e3s"]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a duration") as raised:
        RateLimit(1, per=text)
    assert raised.value.field == "period_ns"


def test_what_a_gate_was_made_from_can_be_read_and_not_written() -> None:
    made = gate_of(capacity=7)
    assert made.limits == {"rate": RateLimit(30, burst=60)}
    assert made.policies == {"default": (("rate", "caller"),)}
    assert made.capacity == 7
    with pytest.raises(TypeError):
        made.limits["rate"] = OFF  # type: ignore[index]
    with pytest.raises(TypeError):
        made.policies["p"] = ()  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.capacity = 8  # type: ignore[misc]
