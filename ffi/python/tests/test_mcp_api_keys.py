"""API keys: three places to send one, a 401 with a hint, and no secret anywhere."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from callgate import RateLimit
from callgate.mcp import APIKeyMiddleware, APIKeys, ASGIMiddleware, api_keys, protect
from mcp_asgi_support import JSON, App, Connection, request
from mcp_support import (
    SERVERS,
    Clock,
    asynchronous,
    call_message,
    charged,
    make_gate,
    serve,
)

ANN_KEY, ANN_OTHER_KEY, BEN_KEY = "k-ann-3f9c27", "k-ann-b0b1e5", "k-ben+71/aa=="
USERS = {ANN_KEY: "ann", ANN_OTHER_KEY: "ann", BEN_KEY: "ben"}


def guarded(failures: RateLimit | None = None) -> tuple[Any, App, Any, Clock]:
    app, gate, clock = App(), make_gate(), Clock()
    keys = APIKeys(USERS) if failures is None else APIKeys(USERS, failures=failures)
    return APIKeyMiddleware(ASGIMiddleware(app, gate, clock=clock), keys), app, gate, clock


def bearer(key: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {key}".encode()


def named(key: str) -> tuple[bytes, bytes]:
    return b"x-api-key", key.encode()


async def post(guard: Any, *headers: tuple[bytes, bytes], query: bytes = b"") -> Connection:
    return await request(guard, call_message(), JSON, *headers, query_string=query)


@asynchronous
async def test_a_key_is_taken_from_each_of_three_places_and_names_its_user() -> None:
    guard, _app, gate, clock = guarded()
    assert (await post(guard, bearer(ANN_KEY))).status == 200
    assert (await post(guard, named(ANN_OTHER_KEY))).status == 200
    assert (await post(guard, query=b"key=" + ANN_KEY.encode())).status == 200
    assert (await post(guard, named(ANN_KEY))).status == 429
    assert charged(gate, clock, "authenticated", "ann") == 3
    assert (await post(guard, query=b"a=1&key=k-ben%2B71/aa%3d%3D&b=2")).status == 200
    assert (await post(guard, query=b"key=k-ben+71/aa==")).status == 200
    assert charged(gate, clock, "authenticated", "ben") == 2
    assert charged(gate, clock, "anonymous") == 0


@asynchronous
async def test_the_scheme_and_the_names_of_fields_have_no_case() -> None:
    guard, _, _, _ = guarded()
    assert (await post(guard, (b"Authorization", b"bEARER  " + ANN_KEY.encode()))).status == 200
    assert (await post(guard, (b"X-API-Key", ANN_KEY.encode()))).status == 200


@asynchronous
async def test_the_first_place_that_holds_a_key_decides() -> None:
    guard, _, _gate, _clock = guarded()
    assert (await post(guard, bearer("wrong"), named(ANN_KEY))).status == 401
    assert (await post(guard, named("wrong"), query=b"key=" + ANN_KEY.encode())).status == 401
    basic = (b"authorization", b"Basic dXNlcjpwYXNz")
    assert (await post(guard, basic, named(ANN_KEY), query=b"key=wrong")).status == 200


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([], b""),
        ([], b"key="),
        ([], b"other=1"),
        ([(b"x-api-key", b" ")], b""),
        ([(b"authorization", b"Bearer")], b""),
        ([(b"authorization", b"Bearer ")], b""),
        ([(b"authorization", b"Basic dXNlcjpwYXNz")], b""),
    ],
)
@asynchronous
async def test_without_a_key_there_is_a_401_that_says_where_to_send_one(
    headers: list[Any], query: bytes
) -> None:
    guard, app, gate, clock = guarded()
    answer = await post(guard, *headers, query=query)
    assert answer.status == 401
    assert answer.headers[b"www-authenticate"] == b'Bearer realm="mcp"'
    error = answer.json["error"]
    for place in ("Authorization: Bearer KEY", "X-API-Key: KEY", "?key=KEY"):
        assert place in error["message"]
    assert app.bodies == []
    assert gate.stats(now_ns=clock()).live == 0


@pytest.mark.parametrize(
    "wrong", ["wrong", ANN_KEY[:-1], ANN_KEY + "x", ANN_KEY.upper(), "ann", "x" * 9_000, "\udcff"]
)
@asynchronous
async def test_with_an_unknown_key_there_is_a_401(wrong: str) -> None:
    guard, app, gate, clock = guarded()
    answer = await post(guard, (b"x-api-key", wrong.encode(errors="surrogateescape")))
    assert answer.status == 401
    challenge = answer.headers[b"www-authenticate"]
    assert challenge == b'Bearer realm="mcp", error="invalid_token"'
    assert app.bodies == []
    assert gate.stats(now_ns=clock()).live == 0


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "HEAD"])
@asynchronous
async def test_every_method_needs_a_key(method: str) -> None:
    guard, app, _, _ = guarded()
    assert (await request(guard, b"", method=method)).status == 401
    assert app.scopes == []
    assert (await request(guard, b"", named(ANN_KEY), method=method)).status == 200


@asynchronous
async def test_a_websocket_without_a_key_is_closed_and_lifespan_passes() -> None:
    guard, app, _, _ = guarded()
    closed = await request(guard, b"", type="websocket", path="/ws")
    assert closed.sent == [{"type": "websocket.close", "code": 1008}]
    await guard({"type": "lifespan"}, Connection().receive, Connection().send)
    assert [scope["type"] for scope in app.scopes] == ["lifespan"]


@asynchronous
async def test_failed_attempts_have_one_limit_that_changing_keys_does_not_escape() -> None:
    guard, _app, gate, clock = guarded(RateLimit(1, per="1h", burst=5))
    answers = [await post(guard, named(f"guess-{n}")) for n in range(8)]
    assert [answer.status for answer in answers] == [401] * 5 + [429] * 3
    assert answers[7].headers[b"retry-after"] == b"3600"
    data = answers[7].json["error"]["data"]
    assert (data["reason"], data["limit"]) == ("rate", "failed attempts")
    assert 3_590_000 < data["retryAfterMs"] <= 3_600_000
    # Nobody can lock others out, and a request without a key is no attempt.
    assert (await post(guard, named(ANN_KEY))).status == 200
    assert (await post(guard)).status == 401
    assert gate.stats(now_ns=clock()).live == 1


@asynchronous
async def test_a_limit_that_fails_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_keys: APIKeys) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(APIKeys, "failed", fail)
    guard, app, _, _ = guarded()
    assert (await post(guard, named("wrong"))).status == 401
    assert app.bodies == []


def test_each_key_is_compared_with_all_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Spy:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(api_keys, "hmac", Spy)
    keys = APIKeys(USERS)
    for key, user in [*USERS.items(), ("wrong", None), ("", None)]:
        compared.clear()
        assert keys.user_of(key.encode()) == user
        assert len(compared) == len(USERS)
        assert all(len(one) == len(other) == 32 for one, other in compared)


# --- secrets -----------------------------------------------------------------------------------


def strings_within(value: Any, depth: int = 6) -> str:
    """Everything reachable from `value`, spelled out."""
    if depth == 0 or isinstance(value, type | Callable):  # type: ignore[arg-type]
        return ""
    inner = [vars(value)] if hasattr(value, "__dict__") else []
    if isinstance(value, dict):
        inner += [*value, *value.values()]
    elif isinstance(value, list | tuple | set):
        inner += value
    return repr(value) + "".join(strings_within(each, depth - 1) for each in inner)


@asynchronous
async def test_no_secret_is_logged_kept_or_passed_on_in_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        keys = APIKeys.parse(",".join(f"{key}:{user}" for key, user in USERS.items()))
        app, gate, clock = App(), make_gate(), Clock()
        guard = APIKeyMiddleware(ASGIMiddleware(app, gate, clock=clock), keys)
        await post(guard, query=b"a=1&key=" + ANN_KEY.encode() + b"&b=2&key=again")
        await post(guard, named("my-wrong-secret"))
    assert app.scopes[0]["query_string"] == b"a=1&b=2"
    for secret in (*USERS, "my-wrong-secret"):
        assert secret not in caplog.text
        assert secret not in strings_within(keys)
        assert secret not in repr(keys)
    assert repr(keys) == "<callgate.mcp.APIKeys of 3 keys>"


def test_the_query_that_a_server_logs_afterwards_has_no_key() -> None:
    guard, _, _, _ = guarded()
    for key in (ANN_KEY, "wrong"):
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
        scope["query_string"] = f"key={key}&x=1".encode()
        connection = Connection()
        asyncio.run(guard(scope, connection.receive, connection.send))
        assert scope["query_string"] == b"x=1"


# --- the environment ---------------------------------------------------------------------------


def test_keys_are_read_from_the_environment() -> None:
    keys = APIKeys.from_env({"MCP_API_KEYS": f" {ANN_KEY} : ann ,{BEN_KEY}:user:1001,"})
    assert keys is not None
    assert keys.user_of(ANN_KEY.encode()) == "ann"
    assert keys.user_of(BEN_KEY.encode()) == "user:1001"
    assert keys.user_of(b"") is None


@pytest.mark.parametrize("entry", ["s3cret", "s3cret:", ":ann", "s3cret: ", " : "])
def test_an_entry_that_is_no_pair_is_left_out_and_warned_about_without_being_told(
    entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = APIKeys.from_env({"MCP_API_KEYS": f"{ANN_KEY}:ann,{entry}"})
    assert keys is not None and keys.user_of(ANN_KEY.encode()) == "ann"
    assert keys.user_of(b"s3cret") is None
    (warning,) = caplog.records
    assert "MCP_API_KEYS" in warning.message and "entry 2" in warning.message
    assert "s3cret" not in caplog.text


def test_a_key_that_is_there_twice_keeps_its_first_user(caplog: pytest.LogCaptureFixture) -> None:
    keys = APIKeys.parse("k-secret:ann,k-secret:ben")
    assert keys.user_of(b"k-secret") == "ann"
    assert "entry 2" in caplog.text and "k-secret" not in caplog.text


@pytest.mark.parametrize(
    ("values", "is_demanded"),
    [
        ({}, False),
        ({"MCP_API_KEYS": ""}, False),
        ({"MCP_API_KEYS": "k:ann"}, True),
        ({"MCP_API_KEYS": "k:ann", "MCP_AUTH_ENABLED": "false"}, False),
        ({"MCP_API_KEYS": "k:ann", "MCP_AUTH_ENABLED": " OFF "}, False),
        ({"MCP_API_KEYS": "k:ann", "MCP_AUTH_ENABLED": "0"}, False),
        ({"MCP_API_KEYS": "k:ann", "MCP_AUTH_ENABLED": "yes"}, True),
        ({"MCP_AUTH_ENABLED": "true"}, True),
        ({"MCP_AUTH_ENABLED": "1"}, True),
    ],
)
def test_the_environment_says_whether_a_key_is_demanded(
    values: dict[str, str], is_demanded: bool
) -> None:
    assert (APIKeys.from_env(values) is not None) is is_demanded


def test_a_switch_that_says_nothing_keeps_the_default_and_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = {"MCP_API_KEYS": "k:ann", "MCP_AUTH_ENABLED": "maybe"}
    assert APIKeys.from_env(values) is not None
    (warning,) = caplog.records
    assert "MCP_AUTH_ENABLED" in warning.message


def test_where_keys_are_demanded_and_none_is_valid_nobody_gets_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = APIKeys.from_env({"MCP_AUTH_ENABLED": "true"})
    assert keys is not None and keys.user_of(b"") is None
    assert "every request is refused" in caplog.text


@pytest.mark.parametrize("users", [{"": "ann"}, {"k": ""}])
def test_an_empty_key_or_user_is_refused(users: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="empty"):
        APIKeys(users)


@pytest.mark.parametrize("users", [{"k": 1001}, {"k": None}, {b"k-secret": "ann"}, ["k-secret"]])
def test_a_key_or_user_that_is_no_str_is_refused_without_being_told(users: Any) -> None:
    with pytest.raises(TypeError, match="users") as raised:
        APIKeys(users)
    assert "secret" not in str(raised.value)


@asynchronous
async def test_keys_and_users_that_are_no_utf8_are_like_others() -> None:
    keys = APIKeys.from_env({"MCP_API_KEYS": "k-\udcff:\udcfe"})
    assert keys is not None
    gate, clock = make_gate(burst=2), Clock()
    metered = ASGIMiddleware(App(), gate, clock=clock)
    guard = APIKeyMiddleware(metered, keys)
    statuses = [(await post(guard, (b"x-api-key", b"k-\xff"))).status for _ in range(3)]
    assert (statuses, metered.internal_errors) == ([200, 200, 429], 0)
    with pytest.raises(ValueError, match="UTF-8") as raised:
        APIKeys({"k-secret\ud800": "ann"})
    assert "secret" not in f"{vars(raised.value)} {raised.value!r}"


def test_only_api_keys_can_be_demanded() -> None:
    users: Any = {"k-secret": "ann"}
    with pytest.raises(TypeError, match="keys must be APIKeys, not dict"):
        APIKeyMiddleware(App(), users)


# --- in front of real servers ------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_protect_demands_a_key_at_the_endpoint_and_charges_its_user(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_API_KEYS", f"{ANN_KEY}:ann,{BEN_KEY}:ben")
    gate, clock = make_gate(burst=2), Clock()
    async with serve(server, lambda app: protect(app, gate, clock=clock)) as served:
        assert (await served.post(served.message())).status_code == 401
        for status in (200, 200, 429):
            response = await served.post(served.message(), {"x-api-key": ANN_KEY})
            assert response.status_code == status
        response = await served.post(served.message(), {"authorization": f"Bearer {BEN_KEY}"})
        assert response.status_code == 200
    assert served.ran == ["work"] * 3


@asynchronous
async def test_keys_given_in_code_come_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_API_KEYS", f"{ANN_KEY}:ann")
    async with serve("mcp-modern", lambda app: protect(app, make_gate(), api_keys=None)) as served:
        assert (await served.post(served.message())).status_code == 200
    keys = APIKeys({BEN_KEY: "ben"})
    async with serve("mcp-modern", lambda app: protect(app, make_gate(), api_keys=keys)) as served:
        assert (await served.post(served.message(), {"x-api-key": ANN_KEY})).status_code == 401
        assert (await served.post(served.message(), {"x-api-key": BEN_KEY})).status_code == 200


@asynchronous
async def test_both_endpoints_of_the_older_transport_need_a_key() -> None:
    from fastmcp import FastMCP

    apps = [MCPServer("test").sse_app(), FastMCP("test").http_app(transport="sse")]
    for app in apps:
        protect(app, make_gate(), api_keys=APIKeys(USERS))
        for method, path in (("GET", "/sse"), ("POST", "/messages/")):
            connection = Connection()
            scope: Any = {"type": "http", "method": method, "path": path, "headers": []}
            scope |= {"root_path": "", "query_string": b"", "http_version": "1.1"}
            await app(scope, connection.receive, connection.send)
            assert connection.status == 401, path
