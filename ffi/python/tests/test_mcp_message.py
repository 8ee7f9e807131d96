"""What counts as a tool call, and what is refused because nobody can tell."""

from __future__ import annotations

import json

import pydantic_core
import pytest

from callgate.mcp.message import (
    INVALID_REQUEST,
    PARSE_ERROR,
    UnreadableMessage,
    echoed_id,
    parse,
    tool_calls,
)
from mcp_support import call_message


def calls_in(body: bytes):
    return tool_calls(parse(body))


def test_a_tool_call_is_counted_with_its_tool_and_id() -> None:
    calls = tool_calls(call_message("search", request_id="a-1"))
    assert calls is not None
    assert (calls.tools, calls.request_id, calls.is_batch, calls.cost) == (
        ("search",),
        "a-1",
        False,
        1,
    )


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "tools/list",
        "resources/read",
        "prompts/get",
        "server/discover",
        "subscriptions/listen",
        "notifications/initialized",
        "notifications/cancelled",
        "completion/complete",
        "tools/call ",
        "Tools/Call",
        "TOOLS/CALL",
        "tools//call",
        "tools/calls",
        "",
    ],
)
def test_no_other_method_is_metered_however_alike(method: str) -> None:
    assert tool_calls({"jsonrpc": "2.0", "id": 1, "method": method}) is None


@pytest.mark.parametrize("message", [None, True, 0, 1.5, "tools/call", [], {}, [[]], [1, None]])
def test_what_is_no_message_holds_no_call(message: object) -> None:
    assert tool_calls(message) is None


@pytest.mark.parametrize("method", [None, 1, ["tools/call"], {"tools/call": 1}, True])
def test_a_method_that_is_no_string_is_no_call(method: object) -> None:
    assert tool_calls({"jsonrpc": "2.0", "id": 1, "method": method}) is None


def test_a_response_holds_no_call() -> None:
    assert tool_calls({"jsonrpc": "2.0", "id": 1, "result": {"method": "tools/call"}}) is None


@pytest.mark.parametrize(
    "spelling", [b'"tools\\/call"', b'"tools\\u002fcall"', b'"\\u0074ools/call"']
)
def test_an_escaped_spelling_of_the_method_is_the_method(spelling: bytes) -> None:
    calls = calls_in(b'{"jsonrpc":"2.0","id":1,"method":' + spelling + b"}")
    assert calls is not None and calls.cost == 1


def test_an_escaped_spelling_of_the_member_name_is_the_member() -> None:
    calls = calls_in(b'{"jsonrpc":"2.0","id":1,"\\u006dethod":"tools/call"}')
    assert calls is not None and calls.cost == 1


def test_a_batch_counts_one_for_each_call_and_nothing_for_the_rest() -> None:
    batch = [
        call_message("a"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call_message("b"),
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        "noise",
        call_message("a"),
    ]
    calls = tool_calls(batch)
    assert calls is not None
    assert (calls.tools, calls.cost, calls.is_batch) == (("a", "b", "a"), 3, True)
    assert calls.request_id is None


def test_a_batch_without_calls_is_not_metered() -> None:
    assert tool_calls([{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 50) is None


@pytest.mark.parametrize("count", [1, 25, 1_000])
def test_a_batch_of_any_size_is_counted_in_full(count: int) -> None:
    calls = tool_calls([call_message()] * count)
    assert calls is not None and calls.cost == count


@pytest.mark.parametrize(
    "params",
    [None, [], "work", {}, {"name": 7}, {"name": ""}, {"name": None}, {"name": "work\ud800"}],
)
def test_a_call_that_names_no_tool_still_counts(params: object) -> None:
    calls = tool_calls({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert calls is not None
    assert calls.tools == (None,)


@pytest.mark.parametrize("extra", [{}, {"jsonrpc": "1.0"}, {"id": None}, {"result": {}}])
def test_a_malformed_call_is_not_a_free_one(extra: dict[str, object]) -> None:
    calls = tool_calls({"method": "tools/call", "params": {"name": "work"}, **extra})
    assert calls is not None and calls.cost == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}]',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
    ],
)
def test_a_repeated_name_that_decides_what_runs_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableMessage) as refused:
        calls_in(body)
    assert refused.value.code == INVALID_REQUEST


def test_a_repeated_name_among_the_arguments_is_the_tools_own_affair() -> None:
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"work","arguments":{"x":1,"x":2}}}'
    )
    calls = calls_in(body)
    assert calls is not None and calls.tools == ("work",)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"method":"tools/call"',
        b'{"method":"tools/call",}',
        b"{'method':'tools/call'}",
        b'{"method":"tools/call"} trailing',
        b'{"method":"tools/call"}\x00',
        b'{"method":"tools/call"}{"method":"ping"}',
        b'\xef\xbb\xbf{"method":"tools/call"}',
        '{"method":"tools/call"}'.encode("utf-16"),
        '{"method":"tools/call"}'.encode("utf-16-le"),
        '{"method":"tools/call"}'.encode("utf-32"),
        b'{"method":"tools/call","x":"\xed\xa0\x80"}',
        b'{"method":"tools/call","x":"\xff"}',
        b'{"method":"tools/call","x":"\x01"}',
        b'{"method":"tools/call","x":' + b"9" * 5_000 + b"}",
        b'{"method":"tools/call","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\x1f\x8b\x08\x00",
    ],
)
def test_what_is_not_one_utf8_json_text_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableMessage) as refused:
        parse(body)
    assert refused.value.code == PARSE_ERROR


def test_an_unreadable_body_is_not_quoted_back() -> None:
    with pytest.raises(UnreadableMessage) as refused:
        parse(b'{"token": "s3cret"')
    assert "s3cret" not in str(refused.value)


READABLE = [
    b'{"a":1,"a":2}',
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":1e999}',
    b' \t\r\n{"a":1} \n',
    b'{"\\u0061":"\\ud83d\\ude00"}',
    b'{"a":"\x7f"}',
    b'{"a":' + b"[" * 150 + b"]" * 150 + b"}",
    b'{"a":123456789012345678901234567890}',
]


@pytest.mark.parametrize("body", READABLE)
def test_what_is_readable_reads_as_both_readers_of_the_sdks_read_it(body: bytes) -> None:
    assert repr(parse(body)) == repr(pydantic_core.from_json(body)) == repr(json.loads(body))


@pytest.mark.parametrize(("value", "echoed"), [(7, 7), ("7", "7"), (0, 0), ("", ""), (1.5, 1.5)])
def test_an_id_is_echoed_with_its_type(value: object, echoed: object) -> None:
    assert echoed_id(value) == echoed
    assert type(echoed_id(value)) is type(echoed)


@pytest.mark.parametrize("value", [None, True, False, [], {}, [1], float("nan"), float("inf")])
def test_what_cannot_be_an_id_is_not_echoed(value: object) -> None:
    assert echoed_id(value) is None
