"""A real MCP server behind callgate, made with the official Python SDK and served by uvicorn.

What it does is said in README.md, one folder up; `guarded.py` has the part under `/guarded`.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import uvicorn
from guarded import Guarded, make_guarded_app, user_of
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, get_access_token
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from callgate import Gate, RateLimit
from callgate.mcp import Observation, SDKMiddleware, protect

CALLER_BURST = 20
ANONYMOUS_BURST = 10
FORWARDED_BURST = 5


class Verifier:
    """The authentication of this server: `valid-NAME` is NAME's token."""

    async def verify_token(self, token: str) -> AccessToken | None:
        prefix, _, name = token.partition("-")
        if prefix != "valid" or not name:
            return None
        return AccessToken(token=token, client_id=name, scopes=[])


class Record:
    """What ran and what was decided, by the name of the caller, for `/stats`."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.gate_ns: dict[str, list[int]] = defaultdict(list)

    def ran_tool(self) -> None:
        token = get_access_token()
        self.ran_for(token.client_id if token else "-")

    def ran_for(self, name: str) -> None:
        self.ran[name] += 1

    def observe(self, observation: Observation) -> None:
        token = getattr(observation.source.get("user"), "access_token", None)
        self.gate_ns[token.client_id if token else observation.policy].append(observation.gate_ns)

    def observe_guarded(self, observation: Observation) -> None:
        self.gate_ns[user_of(observation.source)].append(observation.gate_ns)


def make_gate() -> Gate:
    return Gate(
        limits={
            "caller": RateLimit(1, per="1h", burst=CALLER_BURST),
            "anonymous": RateLimit(1, per="1h", burst=ANONYMOUS_BURST),
            "forwarded": RateLimit(1, per="1h", burst=FORWARDED_BURST),
        },
        policies={
            "authenticated": [("caller", "caller")],
            "anonymous": [("anonymous", "shared")],
            "forwarded-bearer": [("forwarded", "shared"), ("caller", "caller")],
        },
        capacity=1_000,
    )


def make_mcp_server(gate: Gate, record: Record, **options: Any) -> MCPServer[Any]:
    # Behind the ASGI middleware as well: a call that passes both must be charged once.
    server: MCPServer[Any] = MCPServer(
        "callgate-e2e", middleware=[SDKMiddleware(gate)], log_level="ERROR", **options
    )

    @server.tool()
    def echo(text: str) -> str:
        """Answers what it was told."""
        record.ran_tool()
        return text

    @server.tool()
    async def wait() -> str:
        """Runs until its caller has had enough."""
        record.ran_tool()
        await anyio.sleep_forever()
        return "never"

    return server


def make_app(gate: Gate, record: Record, url: str) -> Starlette:
    auth = AuthSettings(
        issuer_url="https://issuer.example",
        resource_server_url=f"{url}/private/mcp",
        validate_token_resource=False,
    )
    private_server = make_mcp_server(gate, record, auth=auth, token_verifier=Verifier())
    private = private_server.streamable_http_app()
    public = make_mcp_server(gate, record).streamable_http_app()
    # The SDK's own authentication either demands a token or knows none. Here it is asked for its
    # opinion, and nobody is turned away; the last added is the outermost.
    public.add_middleware(AuthContextMiddleware)
    public.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(Verifier()))

    guarded = Guarded()
    guarded_app = make_guarded_app(guarded, record.ran_for, record.observe_guarded)

    async def stats(_request: Request) -> JSONResponse:
        decided = gate.stats()
        decisions = [[*key, count] for key, count in decided.decisions.items()]
        body = {"ran": record.ran, "decisions": decisions, "live": decided.live}
        body |= {"in_flight": guarded.in_flight, "waiting": len(guarded.waiting)}
        return JSONResponse({**body, "gate_ns": record.gate_ns})

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for app in (private, public, guarded_app):
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    routes = [
        Route("/stats", stats),
        Mount("/private", private),
        Mount("/guarded", guarded_app),
        Mount("/", public),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    return protect(app, gate, api_keys=None, observe=record.observe)


def main() -> None:
    # asyncio switches Nagle's algorithm off (else each answer waits for an ACK, some 40 ms) only on
    # sockets that say they are TCP.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        # Listening from here on: a client that connects before the server is up waits.
        listener.listen(256)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = make_app(make_gate(), Record(), url)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))

        def end_with_parent() -> None:
            sys.stdin.read()
            server.should_exit = True

        threading.Thread(target=end_with_parent, daemon=True).start()
        print(url, flush=True)
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
