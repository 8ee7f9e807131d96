"""Bad calls are errors that name the argument; nothing is charged, and nothing crashes."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from callgate import CallError, ConfigError, Gate, Key, Permit, RateLimit, Refused, _engine
from engine_support import gate_of, remaining

GATE = Gate(
    limits={"rate": RateLimit(30, burst=60)},
    policies={
        "default": [("rate", "caller")],
        "by_tool": [("rate", "tool")],
        "by_pair": [("rate", "caller_tool")],
    },
)
OTHER = gate_of()
UNTYPED: Any = GATE
"""The gate, for calls that a type checker would refuse."""


def admit(*args: Any, **arguments: Any) -> Callable[[], object]:
    return lambda: GATE.try_admit(*args, **{"now_ns": 0, **arguments})


BAD_CALLS: list[tuple[str, Callable[[], object], str, str]] = [
    ("unknown policy", admit("nobody"), "policy", "'nobody' is unknown: this gate has .*'default'"),
    ("no caller", admit("default"), "caller", "a limit of the policy 'default' is kept by caller"),
    ("no tool", admit("by_tool"), "tool", "a limit of the policy 'by_tool' is kept by tool"),
    ("half a pair", admit("by_pair", caller="a"), "tool", "the policy 'by_pair' is kept by tool"),
    ("empty caller", admit("default", ""), "caller", "1 or more bytes"),
    ("empty bytes", admit("default", b""), "caller", "1 or more bytes"),
    ("empty tool", admit("default", "a", ""), "tool", "1 or more bytes"),
    ("surrogates", admit("default", "\ud800"), "caller", "UTF-8"),
    ("a key of another gate", admit("default", OTHER.key("a")), "caller", "another gate"),
    ("a tool as caller", admit("default", GATE.key("a", "tool")), "caller", "one of a tool"),
    ("a caller as tool", admit("by_tool", tool=GATE.key("a")), "tool", "one of a caller"),
    ("negative cost", admit("default", "a", cost=-1), "cost", r"0 to 2\^64-1 tokens"),
    ("great cost", admit("default", "a", cost=2**64), "cost", r"0 to 2\^64-1 tokens"),
    ("negative reserve", admit("default", "a", reserve=-1), "reserve", r"0 to 2\^64-1 units"),
    ("negative time", admit("default", "a", now_ns=-1), "now_ns", r"0 to 2\^61-1 ns"),
    ("late time", admit("default", "a", now_ns=2**61), "now_ns", r"below 2\^61"),
    ("endless time", admit("default", "a", now_ns=2**64), "now_ns", r"0 to 2\^61-1 ns"),
    ("negative date", admit("default", "a", unix_ns=-1), "unix_ns", r"0 to 2\^64-1 ns"),
    ("a date alone", admit("default", "a", now_ns=None, unix_ns=1), "unix_ns", "goes with now_ns"),
    ("admit", lambda: GATE.admit("nobody"), "policy", "'nobody' is unknown"),
    ("peek", lambda: GATE.peek("default"), "caller", "kept by caller"),
    ("peek late", lambda: GATE.peek("default", "a", now_ns=2**61), "now_ns", "below"),
    ("stats late", lambda: GATE.stats(now_ns=2**61), "now_ns", "below"),
    ("key of nobody", lambda: GATE.key(""), "identity", "1 or more bytes"),
    ("key of what", lambda: UNTYPED.key("a", "user"), "domain", "'caller' or 'tool'"),
    ("reconfigure what", lambda: GATE.reconfigure("x", RateLimit(1)), "name", "gate has 'rate'"),
    ("reconfigure when", lambda: GATE.reconfigure("rate", RateLimit(1), 2**61), "now_ns", "below"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "field", "message"), [b[1:] for b in BAD_CALLS], ids=[b[0] for b in BAD_CALLS]
)
def test_a_bad_call_names_the_argument_and_what_is_allowed(
    call: Callable[[], object], field: str, message: str
) -> None:
    before = GATE.stats(now_ns=0)
    with pytest.raises(CallError, match=message) as raised:
        call()
    assert raised.value.field == field
    assert str(raised.value).startswith(field)
    assert GATE.stats(now_ns=0) == before


WRONG_TYPES: list[tuple[str, Callable[[], object], str]] = [
    ("policy", admit(1), "policy must be a str, not int"),
    ("caller", admit("default", 5), "caller must be a str, bytes, callgate.Key or None, not int"),
    ("bytearray", admit("default", bytearray(b"a")), "caller must be a str, bytes, .*bytearray"),
    ("tool", admit("default", "a", ["t"]), "tool must be a str, bytes, callgate.Key or None"),
    ("cost: float", admit("default", "a", cost=1.0), "cost must be an int, not float"),
    ("cost: bool", admit("default", "a", cost=True), "cost must be an int, not bool"),
    ("cost: None", admit("default", "a", cost=None), "cost must be an int, not NoneType"),
    ("reserve", admit("default", "a", reserve="1"), "reserve must be an int, not str"),
    ("now_ns", admit("default", "a", now_ns=0.5), "now_ns must be an int, not float"),
    ("unix_ns", admit("default", "a", unix_ns="0"), "unix_ns must be an int, not str"),
    ("no policy", lambda: UNTYPED.try_admit(), "misses the required argument 'policy'"),
    ("unknown", admit("default", "a", price=1), "unexpected keyword argument 'price'"),
    ("twice", admit("default", "a", caller="b"), "multiple values for argument 'caller'"),
    ("too many", lambda: GATE.try_admit(*"abcdefgh"), r"at most 7 arguments \(8 given\)"),
    ("key", lambda: UNTYPED.key(None), "identity must be a str or bytes, not NoneType"),
    (
        "key of a key",
        lambda: UNTYPED.key(GATE.key("a")),
        "identity must be a str or bytes, not Key",
    ),
    ("domain", lambda: UNTYPED.key("a", 1), "domain must be a str, not int"),
    (
        "limit",
        lambda: UNTYPED.reconfigure("rate", 5),
        "limit must be a RateLimit, .* or OFF, not int",
    ),
    ("limit's name", lambda: UNTYPED.reconfigure(0, RateLimit(1)), "name must be a str, not int"),
]


@pytest.mark.parametrize(
    ("call", "message"), [w[1:] for w in WRONG_TYPES], ids=[w[0] for w in WRONG_TYPES]
)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_whatever_has_an_index_is_an_int() -> None:
    class Two:
        def __index__(self) -> int:
            return 2

    gate = gate_of()
    gate.try_admit("default", "alice", cost=Two(), now_ns=0)  # type: ignore[arg-type]
    assert remaining(gate) == 58


def test_an_error_in_an_index_is_passed_on() -> None:
    class Broken:
        def __index__(self) -> int:
            raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        GATE.try_admit("default", "alice", cost=Broken())  # type: ignore[arg-type]


def test_a_key_is_its_identity_made_once() -> None:
    gate = gate_of(burst=2)
    key = gate.key("alice")
    assert gate.try_admit("default", key, now_ns=0)
    assert gate.try_admit("default", "alice", now_ns=0)
    assert not gate.try_admit("default", key, now_ns=0)
    assert not gate.try_admit("default", b"alice", now_ns=0)


def test_keys_are_equal_where_gate_domain_and_identity_are() -> None:
    key = GATE.key("alice")
    assert key == GATE.key(b"alice") and hash(key) == hash(GATE.key("alice"))
    assert key != GATE.key("bob")
    assert key != GATE.key("alice", "tool")
    assert key != OTHER.key("alice")
    assert key != "alice"
    assert (key.domain, GATE.key("x", domain="tool").domain) == ("caller", "tool")
    with pytest.raises(TypeError):
        assert key < GATE.key("bob")  # type: ignore[operator]


def test_a_key_tells_nothing_of_its_identity() -> None:
    assert "alice" not in repr(GATE.key("alice"))
    assert repr(GATE.key("alice")) != repr(GATE.key("bob"))
    assert not [name for name in dir(Key) if not name.startswith("_") and name != "domain"]


def test_gates_of_one_secret_make_the_same_digest_and_others_do_not() -> None:
    secret = b"0123456789abcdef"
    text = {repr(gate_of(secret=secret).key("alice")) for _ in range(3)}
    assert len(text) == 1
    assert repr(gate_of().key("alice")) not in text


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_nothing_that_belongs_to_a_gates_memory_is_pickled_or_copied(
    how: Callable[[object], object],
) -> None:
    gate = gate_of()
    decision = gate.try_admit("default", "alice", now_ns=0)
    for thing in (gate, gate.key("alice"), decision, decision.permit):
        with pytest.raises(TypeError, match="can't be pickled or copied: it belongs to the memory"):
            how(thing)


@pytest.mark.parametrize("kind", ["Key", "Permit", "Decision"])
def test_nobody_but_a_gate_makes_keys_permits_and_decisions(kind: str) -> None:
    with pytest.raises(TypeError, match="cannot create"):
        getattr(_engine, kind)()


def test_a_gate_is_made_once() -> None:
    with pytest.raises(RuntimeError, match="make a new gate"):
        UNTYPED.__init__(limits={"x": RateLimit(1)}, policies={"x": [("x", "shared")]})
    assert GATE.policies.keys() == {"default", "by_tool", "by_pair"}


def test_a_gate_that_was_never_made_says_so() -> None:
    gate: Any = Gate.__new__(Gate)
    calls: list[Callable[[], object]] = [
        lambda: gate.try_admit("x"),
        lambda: gate.key("x"),
        lambda: gate.settle(None),
        lambda: gate.peek("x"),
        lambda: gate._stats(None),
        lambda: gate._decisions(0),
        lambda: gate._reconfigure(0, (1, 0, 0, 0), None),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="__init__"):
            call()
    assert repr(gate) == "<callgate.Gate, not initialized>"


def test_a_gate_can_be_derived_from() -> None:
    class Named(Gate):
        def __init__(self, name: str) -> None:
            super().__init__(limits={"r": RateLimit(1)}, policies={"p": [("r", "shared")]})
            self.name = name

    gate = Named("mine")
    assert gate.try_admit("p", now_ns=0) and gate.name == "mine"


def test_errors_survive_pickling() -> None:
    copied = pickle.loads(pickle.dumps(CallError("text", "cost")))
    assert (str(copied), copied.field) == ("text", "cost")


class Hostile(str):
    """A name that fails when it is looked at."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


class HostileIndex:
    """A number that fails when it is looked at, or is none."""

    def __index__(self) -> int:
        return "1"  # type: ignore[return-value]


def garbage(gate: Gate) -> list[Any]:
    decision = gate.try_admit("default", "garbage", now_ns=0)
    foreign = OTHER.try_admit("default", "garbage", now_ns=0)
    return [
        None, True, False, 0, 1, -1, 2**31, 2**32, 2**61, 2**63, 2**64 - 1, 2**64, 10**40, 0.0,
        -1.5, float("nan"), float("inf"), 1j, "", "default", "caller", "tool", "success", "rate",
        "\0", "\ud800", "\U0010ffff", "x" * 100_000, b"", b"\xff\0", bytearray(b"x"), (), (1,),
        (1, 2, 3, 4), (2, 30, 10**9, 60), (2, None, -1, 1.5), ((0, 1),), (("rate",),), [], {},
        {"a": 1}, memoryview(b"x"), object(), object, len, Hostile("default"), HostileIndex(), gate,
        OTHER, gate.key("a"), gate.key("a", "tool"), OTHER.key("a"), decision, decision.permit,
        foreign.permit, RateLimit(1), RateLimit(2**64 - 1, per=1), Exception(), "cancelled",
    ]  # fmt: skip


def test_garbage_never_crashes_and_raises_nothing_unexpected() -> None:
    chooser = random.Random(20_240_607)
    gate = gate_of()
    things = garbage(gate)
    raw = _engine.Gate()
    keywords = [
        "policy", "caller", "tool", "cost", "reserve", "now_ns", "unix_ns", "permit", "outcome",
        "used", "identity", "domain", "limits", "policies", "capacity", "secret", "memory", "name",
        "limit", "x",
    ]  # fmt: skip
    calls: list[Callable[..., object]] = [
        gate.try_admit, gate.admit, gate.peek, gate.settle, gate.key, gate.reconfigure, gate.stats,
        gate._open, gate._peek, gate._reconfigure, gate._stats, gate._decisions, raw._open,
        _engine.check_limit, RateLimit,
    ]  # fmt: skip
    expected = (TypeError, ValueError, OverflowError, IndexError, RuntimeError, ZeroDivisionError)
    outcomes = {"returned": 0, "raised": 0}
    for _ in range(60_000):
        call = chooser.choice(calls)
        args = [chooser.choice(things) for _ in range(chooser.randrange(5))]
        names = chooser.sample(keywords, chooser.randrange(3))
        try:
            call(*args, **{name: chooser.choice(things) for name in names})
            outcomes["returned"] += 1
        except expected:
            outcomes["raised"] += 1
        except Refused:
            outcomes["raised"] += 1
    assert min(outcomes.values()) > 100, "both ways were taken"


def test_garbage_as_a_configuration_never_crashes() -> None:
    chooser = random.Random(7)
    things = garbage(gate_of())

    def anything(depth: int) -> Any:
        kind = chooser.randrange(4 if depth else 1)
        parts = [anything(depth - 1) for _ in range(chooser.randrange(4))] if kind else []
        return [chooser.choice(things), tuple(parts), parts, None][kind]

    raised = 0
    for _ in range(20_000):
        parts = (
            tuple(f"l{n}" for n in range(chooser.randrange(3))),
            anything(2) or (),
            ("p",),
            anything(3) or (),
            chooser.choice([1, 5, anything(0)]),
            chooser.choice([b"0123456789abcdef", anything(0)]),
            False,
        )
        try:
            _engine.Gate()._open(parts)
        except (TypeError, ValueError, OverflowError, IndexError, ConfigError):
            raised += 1
    assert raised > 10_000


def test_a_hostile_policy_name_passes_its_own_error_on() -> None:
    with pytest.raises(ZeroDivisionError):
        GATE.try_admit(Hostile("default"), "a")


def test_a_permit_stays_valid_when_its_gate_is_gone() -> None:
    gate = gate_of()
    permit = gate.try_admit("default", "alice", now_ns=0).permit
    key = gate.key("alice")
    del gate
    assert isinstance(permit, Permit) and hash(key) == hash(key)
    with pytest.raises(CallError, match="another gate"):
        OTHER.settle(permit)
