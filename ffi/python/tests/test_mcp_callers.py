"""Who is charged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from callgate import Gate, RateLimit
from callgate.mcp import CALLER, Caller, caller_of_scope, token_identity
from callgate.mcp.callers import CallerResolver
from mcp_asgi_support import metered, request
from mcp_support import asynchronous, call_message, charged, make_gate


def scope(*headers: tuple[bytes, bytes], token: AccessToken | None = None) -> dict[str, Any]:
    user = {} if token is None else {"user": AuthenticatedUser(token)}
    return {"type": "http", "headers": list(headers), **user}


def token(client_id: str = "client", **fields: Any) -> AccessToken:
    return AccessToken(token="t0ken", client_id=client_id, scopes=[], **fields)


def bearer(value: bytes) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + value


def test_a_verified_token_is_charged_under_authenticated() -> None:
    caller = caller_of_scope(scope(bearer(b"t0ken"), token=token()))
    assert caller.policy == "authenticated"
    assert caller.identity == token_identity(token())


def test_the_identity_of_a_token_does_not_hold_the_token() -> None:
    assert "t0ken" not in str(token_identity(token()))


def test_two_clients_of_one_subject_are_one_caller() -> None:
    one = token_identity(token("a", subject="ann", claims={"iss": "https://issuer.example"}))
    other = token_identity(token("b", subject="ann", claims={"iss": "https://issuer.example"}))
    assert one == other


def test_two_subjects_of_one_client_are_two_callers() -> None:
    assert token_identity(token(subject="ann")) != token_identity(token(subject="bob"))


def test_one_subject_at_two_issuers_is_two_callers() -> None:
    assert token_identity(token(subject="ann", claims={"iss": "a"})) != token_identity(
        token(subject="ann", claims={"iss": "b"})
    )


def test_the_subject_may_come_as_a_claim() -> None:
    assert token_identity(token(claims={"sub": "ann"})) == token_identity(token(subject="ann"))


@pytest.mark.parametrize(
    "client_id",
    [
        "ann",
        'subject", "ann',
        '["subject", "ann"]',
        'token:[null, "subject", "ann"]',
        "\0bearer\0x",
    ],
)
def test_no_client_id_can_be_spelled_to_equal_a_subject(client_id: str) -> None:
    assert token_identity(token(client_id)) != token_identity(token("x", subject="ann"))


def test_an_unverified_bearer_is_charged_as_such() -> None:
    caller = caller_of_scope(scope(bearer(b"abc")))
    assert caller == Caller("forwarded-bearer", b"\0bearer\0abc")


def test_an_unverified_bearer_cannot_be_spelled_like_a_verified_caller() -> None:
    victim = token_identity(token())
    assert victim is not None
    assert caller_of_scope(scope(bearer(victim.encode()))).identity != victim.encode()


@pytest.mark.parametrize(
    "field",
    [b"bearer abc", b"BEARER abc", b"Bearer  abc", b" Bearer abc ", b"Bearer\x20abc"],
)
def test_a_bearer_is_the_same_bearer_however_it_is_spaced_and_cased(field: bytes) -> None:
    caller = caller_of_scope(scope((b"Authorization", field)))
    assert caller == Caller("forwarded-bearer", b"\0bearer\0abc")


@pytest.mark.parametrize("field", [b"", b"Bearer", b"Bearer ", b"Basic dTpw", b"abc"])
def test_without_a_bearer_the_caller_is_anonymous(field: bytes) -> None:
    assert caller_of_scope(scope((b"authorization", field))) == Caller("anonymous")


def test_only_the_first_authorization_field_counts() -> None:
    fields = (b"authorization", b"Basic dTpw"), bearer(b"abc")
    assert caller_of_scope(scope(*fields)) == Caller("anonymous")


def test_a_transport_without_http_is_anonymous() -> None:
    assert caller_of_scope(None) == Caller("anonymous")


@pytest.mark.parametrize("client_id", ["", None, 7])
def test_a_token_without_a_client_is_no_identity(client_id: object) -> None:
    assert token_identity(SimpleNamespace(client_id=client_id)) is None


@pytest.mark.parametrize("answer", [None, "", b""])
@asynchronous
async def test_no_identity_is_anonymous_never_an_empty_key(answer: Any) -> None:
    resolver = CallerResolver(make_gate(), lambda _: answer)
    assert await resolver.resolve(None, scope(bearer(b"abc"))) == Caller("anonymous")


@pytest.mark.parametrize("identity", [None, "", b""])
@asynchronous
async def test_a_caller_without_an_identity_is_anonymous_where_limits_are_kept_per_caller(
    identity: Any,
) -> None:
    gate = gate_with(
        anonymous=[("x", "shared")], authenticated=[("x", "caller")], staff=[("x", "tool")]
    )
    for policy, becomes in (("authenticated", "anonymous"), ("staff", "staff")):
        known = Caller(policy, identity)
        resolver = CallerResolver(gate, lambda _, known=known: known)
        assert await resolver.resolve(None, None) == Caller(becomes)
        named = {CALLER: known}
        assert await CallerResolver(gate).resolve(None, named) == Caller(becomes)


@asynchronous
async def test_an_identity_that_has_no_utf8_is_one_like_others() -> None:
    for answer in ("\ud800", Caller("authenticated", "\ud800")):
        guard, _, gate, clock = metered(gate=make_gate(burst=2), caller=lambda _, it=answer: it)
        statuses = [(await request(guard, call_message())).status for _ in range(3)]
        assert (statuses, guard.internal_errors) == ([200, 200, 429], 0)
        assert charged(gate, clock, "authenticated", b"\xed\xa0\x80") == 2
        assert charged(gate, clock, "anonymous") == 0


@asynchronous
async def test_a_function_answers_an_identity_a_key_or_a_caller() -> None:
    gate = make_gate()
    key = gate.key("user:1")
    answers = {"user:1": "user:1", b"user:1": b"user:1", key: key}
    for answer, identity in answers.items():
        resolver = CallerResolver(gate, lambda _, answer=answer: answer)
        assert await resolver.resolve(None, None) == Caller("authenticated", identity)
    chosen = Caller("forwarded-bearer", "x")
    assert await CallerResolver(gate, lambda _: chosen).resolve(None, None) == chosen


@asynchronous
async def test_a_function_may_be_async_and_gets_its_source() -> None:
    async def caller(source: Any) -> str:
        return f"user:{source}"

    resolver = CallerResolver(make_gate(), caller)
    assert await resolver.resolve(7, None) == Caller("authenticated", "user:7")


@pytest.mark.parametrize("answer", [7, True, ["user:1"], object()])
@asynchronous
async def test_an_answer_of_another_type_is_an_error(answer: Any) -> None:
    with pytest.raises(TypeError, match=type(answer).__name__):
        await CallerResolver(make_gate(), lambda _: answer).resolve(None, None)


@asynchronous
async def test_without_a_policy_for_it_a_forwarded_bearer_is_anonymous() -> None:
    limit = RateLimit(1, per="1h")
    gate = Gate(
        limits={"x": limit},
        policies={"anonymous": [("x", "shared")], "authenticated": [("x", "caller")]},
    )
    resolver = CallerResolver(gate)
    assert await resolver.resolve(None, scope(bearer(b"abc"))) == Caller("anonymous")


def gate_with(**policies: list[tuple[str, str]]) -> Gate:
    return Gate(limits={"x": RateLimit(1, per="1h")}, policies=policies, capacity=16)


def test_a_gate_without_an_anonymous_policy_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match="anonymous"):
        CallerResolver(gate_with(authenticated=[("x", "caller")]))


def test_a_gate_without_an_authenticated_policy_needs_a_caller_function() -> None:
    gate = gate_with(anonymous=[("x", "shared")])
    with pytest.raises(ValueError, match="authenticated"):
        CallerResolver(gate)
    CallerResolver(gate, lambda _: Caller("anonymous"))


@pytest.mark.parametrize("per_caller", ["caller", "caller_tool"])
def test_an_anonymous_policy_with_a_limit_per_caller_is_refused_at_start(per_caller: str) -> None:
    gate = gate_with(anonymous=[("x", per_caller)], authenticated=[("x", "caller")])
    with pytest.raises(ValueError, match="no caller"):
        CallerResolver(gate)
