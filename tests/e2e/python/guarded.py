"""The part of the server that has places, breakers, a daily quota and API keys: `/guarded`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import anyio
from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from callgate import ConcurrencyLimit, Gate, Quota, RateLimit
from callgate.mcp import CALLER, APIKeys, Observation, SDKMiddleware, protect, report_usage

PLACES = 3
REJECT_TRIP = 5
FAILURE_TRIP = 3
COOLDOWN_S = 30
DAILY_TOKENS = 1_000
TOKENS_PER_THOUGHT = 400
EXPENSIVE_BURST = 2
FAILED_ATTEMPTS = 20
ZONE = "Asia/Shanghai"
TO_MIDNIGHT_S = 60
USERS = ("erin", "frank", "gina", "hal", "ivy", "jo", "kim", "lee", "max")

_NS = 1_000_000_000


class StandingTime:
    """The two clocks of a gate, both of them at a standstill until they are moved together."""

    def __init__(self) -> None:
        midnight = datetime(2026, 3, 2, tzinfo=ZoneInfo(ZONE))
        self.now_ns = 1_000 * _NS
        self.unix_ns = (int(midnight.timestamp()) - TO_MIDNIGHT_S) * _NS

    def advance(self, seconds: int) -> None:
        self.now_ns += seconds * _NS
        self.unix_ns += seconds * _NS

    def options(self) -> dict[str, Callable[[], int]]:
        return {"clock": lambda: self.now_ns, "wall_clock": lambda: self.unix_ns}


class Guarded:
    """The gate, its time, and the calls of `slow` that wait for their end."""

    def __init__(self) -> None:
        self.time = StandingTime()
        self.waiting: set[anyio.Event] = set()
        server = ("server", "shared")
        self.gate = Gate(
            limits={
                "caller": RateLimit(1, per="1h", burst=100),
                "expensive": RateLimit(1, per="1h", burst=EXPENSIVE_BURST),
                "tokens": Quota(DAILY_TOKENS, tz=ZONE),
                "fragile": ConcurrencyLimit(
                    PLACES, failure_trip=FAILURE_TRIP, cooldown=COOLDOWN_S * _NS
                ),
                "server": ConcurrencyLimit(
                    PLACES, reject_trip=REJECT_TRIP, cooldown=COOLDOWN_S * _NS
                ),
            },
            policies={
                "authenticated": [("caller", "caller"), ("tokens", "caller"), server],
                "expensive": [("expensive", "caller"), ("tokens", "caller"), server],
                "fragile": [("caller", "caller"), ("fragile", "shared"), server],
                "anonymous": [server],
            },
            capacity=1_000,
        )

    @property
    def in_flight(self) -> int:
        return self.gate.guards("server", now_ns=self.time.now_ns).in_flight

    async def slow(self) -> None:
        may_end = anyio.Event()
        self.waiting.add(may_end)
        try:
            await may_end.wait()
        finally:
            self.waiting.discard(may_end)

    async def advance(self, request: Request) -> JSONResponse:
        self.time.advance(int(request.query_params["seconds"]))
        return JSONResponse({})

    async def release(self, _request: Request) -> JSONResponse:
        for may_end in self.waiting:
            may_end.set()
        return JSONResponse({})


def user_of(scope: Any) -> str:
    return str(scope[CALLER].identity)


def make_guarded_app(
    guarded: Guarded, ran: Callable[[str], None], observe: Callable[[Observation], None]
) -> Starlette:
    clocks = guarded.time.options()
    tools = {"search": "expensive", "fail": "fragile"}
    inner = SDKMiddleware(guarded.gate, tools=tools, **clocks)
    server: MCPServer[Any] = MCPServer("callgate-guarded", middleware=[inner], log_level="ERROR")

    @server.tool()
    async def slow(ctx: Context[Any]) -> str:
        """Runs until it is released."""
        ran(user_of(ctx.request_context.request.scope))
        await guarded.slow()
        return "done"

    @server.tool()
    def think(ctx: Context[Any]) -> str:
        """Uses up tokens."""
        ran(user_of(ctx.request_context.request.scope))
        report_usage(TOKENS_PER_THOUGHT)
        return "hmm"

    @server.tool()
    def search(ctx: Context[Any]) -> str:
        """Is expensive: it has a policy of its own."""
        ran(user_of(ctx.request_context.request.scope))
        return "found"

    # The fault of `fail` is no news: the SDK would print it each time.
    logging.getLogger("mcp.server.mcpserver.server").setLevel(logging.CRITICAL)

    @server.tool()
    def fail(ctx: Context[Any]) -> str:
        """Has a fault."""
        ran(user_of(ctx.request_context.request.scope))
        raise RuntimeError("it is broken")

    users = {f"key-of-{name}": name for name in USERS}
    keys = APIKeys(users, failures=RateLimit(1, per="1h", burst=FAILED_ATTEMPTS))
    app = protect(
        server.streamable_http_app(),
        guarded.gate,
        api_keys=keys,
        tools=tools,
        observe=observe,
        **clocks,
    )
    app.router.routes += [
        Route("/advance", guarded.advance, methods=["POST"]),
        Route("/release", guarded.release, methods=["POST"]),
    ]
    return app
