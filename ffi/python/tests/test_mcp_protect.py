"""The ASGI middleware in front of real servers with real authentication."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from callgate.mcp import (
    APIKeyMiddleware,
    APIKeys,
    ASGIMiddleware,
    FastMCPMiddleware,
    SDKMiddleware,
    env,
    gate_from_env,
    protect,
    token_identity,
)
from mcp_support import BASE_URL, SERVERS, Clock, asynchronous, charged, drain, make_gate, serve

TOKENS = {"t-ann": "ann", "t-bob": "bob", "t-bob-2": "bob"}


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        client_id = TOKENS.get(token)
        return AccessToken(token=token, client_id=client_id, scopes=[]) if client_id else None


def authenticated(server: str) -> dict[str, Any]:
    """Constructor options that make a server ask for a valid bearer token."""
    if server.startswith("fastmcp"):
        claims = {t: {"client_id": client, "scopes": []} for t, client in TOKENS.items()}
        return {"auth": StaticTokenVerifier(claims)}
    settings = AuthSettings(
        issuer_url="https://issuer.example",
        resource_server_url=f"{BASE_URL}/mcp",
        validate_token_resource=False,
    )
    return {"auth": settings, "token_verifier": Verifier()}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def identity(client_id: str) -> str:
    found = token_identity(AccessToken(token="", client_id=client_id, scopes=[]))
    assert found is not None
    return found


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_each_verified_caller_has_a_bucket_and_a_flood_costs_no_other(server: str) -> None:
    gate, clock = make_gate(burst=3), Clock()
    async with serve(
        server, lambda app: protect(app, gate, clock=clock), **authenticated(server)
    ) as served:
        flood = [
            (await served.post(served.message(), bearer("t-bob"))).status_code for _ in range(20)
        ]
        assert flood == [200] * 3 + [429] * 17
        assert (await served.post(served.message(), bearer("t-ann"))).status_code == 200
    assert charged(gate, clock, "anonymous") == 0


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_two_tokens_of_one_caller_share_its_bucket(server: str) -> None:
    gate, clock = make_gate(burst=3), Clock()
    async with serve(
        server, lambda app: protect(app, gate, clock=clock), **authenticated(server)
    ) as served:
        tokens = ["t-bob", "t-bob-2"] * 3
        statuses = [
            (await served.post(served.message(), bearer(token))).status_code for token in tokens
        ]
        assert statuses == [200] * 3 + [429] * 3


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_rotating_invalid_bearers_get_401_charge_nobody_and_mint_nothing(server: str) -> None:
    gate, clock = make_gate(), Clock()
    async with serve(
        server, lambda app: protect(app, gate, clock=clock), **authenticated(server)
    ) as served:
        for n in range(50):
            response = await served.post(served.message(), bearer(f"invalid-{n}"))
            assert response.status_code == 401
        assert (await served.post(served.message())).status_code == 401
        assert served.ran == []
    assert gate.stats(now_ns=clock()).live == 0
    assert charged(gate, clock, "anonymous") == 0


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_an_invalid_bearer_gets_401_even_from_a_drained_gate(server: str) -> None:
    gate, clock = make_gate(), Clock()
    drain(gate, clock)
    async with serve(
        server, lambda app: protect(app, gate, clock=clock), **authenticated(server)
    ) as served:
        response = await served.post(served.message(), bearer("invalid"))
        assert response.status_code == 401
        assert "www-authenticate" in response.headers


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_outside_the_authentication_unverified_bearers_have_the_shared_allowance_first(
    server: str,
) -> None:
    gate, clock = make_gate(forwarded=4), Clock()
    async with serve(
        server, lambda app: ASGIMiddleware(app, gate, clock=clock), **authenticated(server)
    ) as served:
        statuses = [
            (await served.post(served.message(), bearer(f"invalid-{n}"))).status_code
            for n in range(50)
        ]
    assert statuses == [401] * 4 + [429] * 46
    assert gate.stats(now_ns=clock()).live == 5


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_without_authentication_protect_meters_the_anonymous(server: str) -> None:
    gate, clock = make_gate(anonymous=2), Clock()
    async with serve(server, lambda app: protect(app, gate, clock=clock)) as served:
        statuses = [(await served.post(served.message())).status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_other_routes_of_the_application_are_left_alone(server: str) -> None:
    gate, clock = make_gate(), Clock()
    drain(gate, clock)
    async with serve(
        server, lambda app: protect(app, gate, clock=clock), **authenticated(server)
    ) as served:
        response = await served.client.post("/other", content=b'{"method":"tools/call"}')
        assert response.status_code == 404


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_without_a_gate_the_process_has_one_and_both_middlewares_charge_it_once(
    server: str,
) -> None:
    kept, env._default_gate = env._default_gate, gate_from_env({})
    try:
        inner = SDKMiddleware() if server.startswith("mcp") else FastMCPMiddleware()
        async with serve(server, protect, middleware=[inner]) as served:
            for _ in range(3):
                assert (await served.post(served.message())).status_code == 200
        decisions = env.default_gate().stats().decisions
        assert decisions["anonymous", None, None] == sum(decisions.values()) == 3
    finally:
        env._default_gate = kept


@asynchronous
async def test_a_mounted_server_is_found() -> None:
    gate, clock = make_gate(anonymous=1), Clock()

    def mounted(app: Any) -> Any:
        return protect(Starlette(routes=[Mount("/", app=app)]), gate, clock=clock)

    async with serve("mcp-handshake", mounted) as served:
        statuses = [(await served.post(served.message())).status_code for _ in range(2)]
    assert statuses == [200, 429]


@asynchronous
async def test_protecting_twice_charges_once() -> None:
    gate, clock = make_gate(anonymous=5), Clock()

    def twice(app: Any) -> Any:
        return protect(protect(app, gate, clock=clock), gate, clock=clock)

    async with serve("mcp-handshake", twice) as served:
        await served.post(served.message())
        assert (served.ran, charged(gate, clock)) == (["work"], 1)


@pytest.mark.parametrize("server", ["mcp-modern", "fastmcp-handshake"])
@asynchronous
async def test_an_endpoint_that_is_metered_already_gets_the_keys_and_keeps_those_it_has(
    server: str,
) -> None:
    gate, clock = make_gate(burst=9), Clock()

    def thrice(app: Any) -> Any:
        app = protect(app, gate, api_keys=None, clock=clock)
        app = protect(app, gate, api_keys=APIKeys({"k": "ann"}), clock=clock)
        return protect(app, gate, api_keys=APIKeys({"k2": "ben"}), clock=clock)

    async with serve(server, thrice) as served:
        assert (await served.post(served.message())).status_code == 401
        assert (await served.post(served.message(), {"x-api-key": "k2"})).status_code == 401
        assert (await served.post(served.message(), {"x-api-key": "k"})).status_code == 200
    assert charged(gate, clock, "authenticated", "ann") == 1
    assert charged(gate, clock, "anonymous") == 0


@asynchronous
async def test_a_mounted_server_with_a_gate_of_its_own_is_left_to_that_and_gets_the_keys() -> None:
    gate, own, clock = make_gate(), make_gate(), Clock()

    def mounted(app: Any) -> Any:
        other = MCPServer("other").streamable_http_app()
        app = protect(app, own, api_keys=None, clock=clock)
        routes = [Mount("/other", app=other), Mount("/", app=app)]
        return protect(Starlette(routes=routes), gate, api_keys=APIKeys({"k": "ann"}), clock=clock)

    async with serve("mcp-handshake", mounted) as served:
        assert (await served.post(served.message())).status_code == 401
        assert (await served.post(served.message(), {"x-api-key": "k"})).status_code == 200
    assert charged(own, clock, "authenticated", "ann") == 1
    assert charged(gate, clock, "authenticated", "ann") == 0


@pytest.mark.parametrize("api_keys", ["k:ann", "", b"env", {"k": "ann"}, ["k"], True])
def test_api_keys_of_another_type_are_an_error_that_does_not_quote_them(api_keys: Any) -> None:
    with pytest.raises(TypeError, match="api_keys must be APIKeys, 'env' or None") as raised:
        protect(MCPServer("test").streamable_http_app(), make_gate(), api_keys=api_keys)
    assert "ann" not in str(raised.value)


@pytest.mark.parametrize("sdk", ["mcp", "fastmcp"])
@asynchronous
async def test_routes_whose_names_merely_sound_like_the_older_transport_need_no_key(
    sdk: str,
) -> None:
    server: Any = MCPServer("test") if sdk == "mcp" else FastMCP("test")

    async def list_assets(_request: Any) -> PlainTextResponse:
        return PlainTextResponse("for everybody")

    class Classes(HTTPEndpoint):
        async def get(self, _request: Any) -> PlainTextResponse:
            return PlainTextResponse("for everybody")

    server.custom_route("/assets", methods=["GET"])(list_assets)
    app = server.sse_app() if sdk == "mcp" else server.http_app(transport="sse")
    app.routes.append(Route("/classes", Classes, methods=["GET"]))
    protect(app, make_gate(), api_keys=APIKeys({"k": "ann"}))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url=BASE_URL
    ) as client:
        for path, status in (("/assets", 200), ("/classes", 200), ("/sse", 401)):
            assert (await client.get(path)).status_code == status


def test_the_event_stream_is_asked_for_keys_once() -> None:
    app, gate, keys = MCPServer("test").sse_app(), make_gate(), APIKeys({"k": "ann"})
    for _ in range(2):
        protect(app, gate, api_keys=keys)
    assert isinstance(app.routes[0].app, APIKeyMiddleware)
    assert not isinstance(app.routes[0].app.app, APIKeyMiddleware)


def test_the_older_sse_transport_is_protected_at_its_message_endpoint() -> None:
    app = MCPServer("test").sse_app()
    assert protect(app, make_gate()) is app
    assert isinstance(app.routes[1].app, ASGIMiddleware)


@pytest.mark.parametrize("app", [Starlette(), object()])
def test_an_application_without_an_mcp_endpoint_is_an_error(app: Any) -> None:
    with pytest.raises(ValueError, match="ASGIMiddleware"):
        protect(app, make_gate())


def test_options_are_checked_when_the_application_is_made() -> None:
    with pytest.raises(TypeError):
        protect(MCPServer("test").streamable_http_app(), make_gate(), no_such_option=1)
