"""Which policy a call is charged under: by class, by tool, by method, by round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError

from callgate import Gate, RateLimit
from callgate.mcp import Caller, FastMCPMiddleware, SDKMiddleware
from mcp_asgi_support import JSON, metered, request
from mcp_support import Clock, asynchronous, call_message, charged
from test_mcp_meter import sdk_context

BEARER = (b"authorization", b"Bearer unverified-")


def make_gate(**extra: Any) -> Gate:
    limits = {
        "caller": RateLimit(1, per="1h", burst=9),
        "shared": RateLimit(1, per="1h", burst=9),
        "forwarded": RateLimit(1, per="1h", burst=9),
        "expensive": RateLimit(1, per="1h", burst=2),
        "polling": RateLimit(1, per="1h", burst=4),
    }
    policies = {
        "authenticated": [("caller", "caller")],
        "anonymous": [("shared", "shared")],
        "forwarded-bearer": [("forwarded", "shared")],
        "expensive": [("expensive", "caller")],
        "by-tool": [("expensive", "tool")],
        "polling": [("polling", "shared")],
    }
    return Gate(limits=limits, policies={**policies, **extra}, capacity=100)


def middleware(**options: Any):
    return metered(gate=make_gate(), **options)


def as_user(name: str = "ann") -> Any:
    return lambda _source: name


async def statuses(guard: Any, *messages: Any, **scope: Any) -> list[int]:
    return [(await request(guard, message, **scope)).status for message in messages]


@asynchronous
async def test_a_tools_policy_replaces_that_of_the_class_for_this_tool_alone() -> None:
    guard, _, gate, clock = middleware(caller=as_user(), tools={"search": "expensive"})
    search, work = call_message("search"), call_message("work")
    assert await statuses(guard, search, search, search, work) == [200, 200, 429, 200]
    assert charged(gate, clock, "authenticated", "ann") == 1
    assert charged(gate, clock, "expensive", "ann") == 2


@asynchronous
async def test_each_caller_has_its_own_allowance_of_an_expensive_tool() -> None:
    guard, _, _gate, _clock = middleware(
        caller=lambda scope: scope["caller"], tools={"search": "expensive"}
    )
    search = call_message("search")
    for caller in ("ann", "bob"):
        answers = [(await request(guard, search, caller=caller)).status for _ in range(3)]
        assert answers == [200, 200, 429]


@asynchronous
async def test_callers_whom_nobody_verified_share_one_allowance_of_an_expensive_tool() -> None:
    guard, _, gate, clock = middleware(tools={"search": "expensive"})
    answers = []
    for n in range(4):
        bearer = (b"authorization", b"Bearer %d" % n)
        headers = [JSON] if n % 2 else [JSON, bearer]
        answers.append((await request(guard, call_message("search"), *headers)).status)
    assert answers == [200, 200, 429, 429]
    assert gate.stats(now_ns=clock()).live == 1


@asynchronous
async def test_a_tools_policy_may_be_chosen_by_class() -> None:
    guard, _, gate, clock = middleware(
        caller=lambda scope: scope["caller"], tools={"search": {"authenticated": "expensive"}}
    )
    search = call_message("search")
    assert [(await request(guard, search, caller="ann")).status for _ in range(3)] == [
        200,
        200,
        429,
    ]
    assert [(await request(guard, search, caller=None)).status for _ in range(3)] == [200] * 3
    assert charged(gate, clock, "anonymous") == 3


@asynchronous
async def test_a_caller_functions_own_class_can_be_named_too() -> None:
    guard, _, gate, clock = middleware(
        caller=lambda _scope: Caller("polling", "ann"), tools={"search": {"polling": "expensive"}}
    )
    assert await statuses(guard, *[call_message("search")] * 3) == [200, 200, 429]
    assert charged(gate, clock, "polling") == 0


@asynchronous
async def test_a_batch_over_several_policies_is_all_or_nothing() -> None:
    guard, app, gate, clock = middleware(caller=as_user(), tools={"search": "expensive"})
    batch = [call_message("work"), call_message("search"), call_message("work")]
    await request(guard, call_message("search"))
    assert await statuses(guard, batch, batch) == [200, 429]
    assert charged(gate, clock, "authenticated", "ann") == 2
    assert charged(gate, clock, "expensive", "ann") == 2
    assert len(app.bodies) == 2


@asynchronous
async def test_a_batch_that_can_never_pass_one_policy_says_so_of_that_policys_calls() -> None:
    guard, _, gate, clock = middleware(caller=as_user(), tools={"search": "expensive"})
    answer = await request(guard, [call_message("work")] + [call_message("search")] * 3)
    assert answer.status == 429
    assert answer.json["error"]["data"]["reason"] == "never"
    assert answer.json["error"]["message"].startswith("This request holds 3 tool calls")
    assert charged(gate, clock, "authenticated", "ann") == 0


@asynchronous
async def test_where_a_tools_policy_keeps_state_by_tool_each_tool_is_charged_for_itself() -> None:
    guard, _, _gate, _clock = middleware(tools={"search": "by-tool", "fetch": "by-tool"})
    search, fetch = call_message("search"), call_message("fetch")
    assert await statuses(guard, [search, fetch], [search, fetch], fetch) == [200, 200, 429]


@asynchronous
async def test_other_methods_cost_nothing_unless_they_have_a_policy() -> None:
    poll = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "t"}}
    guard, _, gate, clock = middleware()
    assert await statuses(guard, *[poll] * 20) == [200] * 20
    assert gate.stats(now_ns=clock()).live == 0
    guard, _, gate, clock = middleware(methods={"tasks/get": "polling"})
    assert await statuses(guard, *[poll] * 5) == [200] * 4 + [429]
    assert await statuses(guard, call_message()) == [200]
    assert charged(gate, clock, "anonymous") == 1


@asynchronous
async def test_a_method_is_free_for_classes_that_its_choice_leaves_out() -> None:
    poll = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}
    guard, _, gate, clock = middleware(methods={"tasks/get": {"authenticated": "polling"}})
    assert await statuses(guard, *[poll] * 9) == [200] * 9
    assert gate.stats(now_ns=clock()).live == 0


@asynchronous
async def test_a_continuation_costs_like_any_call_unless_it_has_a_policy() -> None:
    again = call_message("search", inputResponses={"q": {"action": "accept"}}, requestState="s")
    guard, _, gate, clock = middleware(caller=as_user(), tools={"search": "expensive"})
    assert await statuses(guard, again, again, again) == [200, 200, 429]
    guard, _, gate, clock = middleware(
        caller=as_user(), tools={"search": "expensive"}, continuations="polling"
    )
    search = call_message("search")
    assert await statuses(guard, search, again, again, search) == [200] * 4
    assert charged(gate, clock, "expensive", "ann") == 2
    assert charged(gate, clock, "polling") == 2


@asynchronous
async def test_the_sdk_middleware_makes_the_same_choices() -> None:
    gate, clock = make_gate(), Clock()
    guard = SDKMiddleware(
        gate,
        clock=clock,
        caller=as_user(),
        tools={"search": "expensive"},
        methods={"tasks/get": "polling"},
        continuations="polling",
    )

    async def call_next(_context: Any) -> None:
        return None

    for params in ({"name": "search"}, {"name": "work"}, {"name": "x", "inputResponses": {}}):
        await guard(sdk_context(params=params), call_next)
    await guard(sdk_context(method="tasks/get", params={"taskId": "t"}), call_next)
    await guard(sdk_context(method="tools/list", params=None), call_next)
    assert charged(gate, clock, "expensive", "ann") == 1
    assert charged(gate, clock, "authenticated", "ann") == 1
    assert charged(gate, clock, "polling") == 2


@pytest.mark.parametrize(
    "options",
    [
        {"tools": {"search": "unknown"}},
        {"tools": {"search": {"authenticated": "unknown"}}},
        {"tools": {"search": {"unknown": "expensive"}}},
        {"methods": {"tasks/get": "unknown"}},
        {"methods": {"tools/call": "polling"}},
        {"continuations": "unknown"},
        {"reserve": -1},
    ],
)
def test_a_choice_that_the_gate_cannot_make_is_refused_at_start(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        middleware(**options)


@asynchronous
async def test_a_name_that_no_tool_can_have_is_charged_as_the_unnamed_tool() -> None:
    gate = make_gate(anonymous=[("expensive", "tool")])
    guard, app, _, clock = metered(gate=gate)
    half = call_message("\ud800")
    assert await statuses(guard, half, [half, half], half, half) == [200, 429, 200, 429]
    assert await statuses(guard, [half, *[call_message()] * 9]) == [429]
    assert (guard.internal_errors, len(app.bodies)) == (0, 2)

    async def call_next(_context: Any) -> dict[str, Any]:
        raise AssertionError("nothing is left for the unnamed tool")

    sdk, fastmcp = SDKMiddleware(gate, clock=clock), FastMCPMiddleware(gate, clock=clock)
    with pytest.raises(MCPError, match="Too many"):
        await sdk(sdk_context(params={"name": "\ud800"}), call_next)
    message: Any = SimpleNamespace(name="\ud800", input_responses=None)
    context: Any = SimpleNamespace(message=message, method="tools/call", fastmcp_context=None)
    with pytest.raises(MCPError, match="Too many"):
        await fastmcp.on_call_tool(context, call_next)
