"""One refusal, three renderings."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from callgate import OFF, RateLimit
from callgate.mcp.refusal import (
    JsonRpcError,
    http_error,
    http_refusal,
    jsonrpc_refusal,
    retry_after_ms,
    retry_after_s,
    sentence,
)
from mcp_support import Clock, make_gate

SECOND = 1_000_000_000
REASONS = ("rate", "concurrency", "breaker_open", "quota", "unseeded", "table_full", "never")
STRUCTURED_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'


@dataclass
class Refusal:
    """A decision as the engine makes it; reasons that the engine does not give yet included."""

    reason: str = "rate"
    by: str | None = "caller"
    retry_after_ns: int = SECOND
    limit: int = 60
    remaining: int = 0
    reset_after_ns: int = 2 * SECOND
    admitted: bool = False
    permit: Any = None


def rendered(decision: Any, **options: Any):
    limits = options.pop("policy_limits", {"caller": RateLimit(30, per="1s", burst=60)})
    response = http_refusal(
        decision,
        cost=options.pop("cost", 1),
        request_id=options.pop("request_id", 1),
        policy_limits=limits,
        **options,
    )
    return response, dict(response.headers), json.loads(response.body)


@pytest.mark.parametrize("reason", REASONS)
def test_the_status_tells_the_callers_own_use_from_the_servers_state(reason: str) -> None:
    response, _, body = rendered(Refusal(reason))
    expected = 503 if reason in ("concurrency", "breaker_open", "unseeded") else 429
    assert response.status == expected
    assert body["error"]["data"]["reason"] == reason


@pytest.mark.parametrize(
    ("wait_ns", "seconds"),
    [(1, b"1"), (SECOND - 1, b"1"), (SECOND, b"1"), (SECOND + 1, b"2"), (3_600 * SECOND, b"3600")],
)
def test_retry_after_is_whole_seconds_rounded_up_and_at_least_one(
    wait_ns: int, seconds: bytes
) -> None:
    _, headers, _ = rendered(Refusal(retry_after_ns=wait_ns))
    assert headers[b"retry-after"] == seconds


@pytest.mark.parametrize(("wait_ns", "ms"), [(1, 1), (1_000_000, 1), (1_000_001, 2)])
def test_retry_after_ms_is_rounded_up(wait_ns: int, ms: int) -> None:
    assert retry_after_ms(Refusal(retry_after_ns=wait_ns)) == ms


def test_where_no_time_is_known_http_still_says_one_second_and_json_says_null() -> None:
    _, headers, body = rendered(Refusal("concurrency", retry_after_ns=0))
    assert headers[b"retry-after"] == b"1"
    assert body["error"]["data"]["retryAfterMs"] is None


def test_a_cost_that_never_fits_promises_no_time_at_all() -> None:
    response, headers, body = rendered(Refusal("never", retry_after_ns=0, limit=20), cost=25)
    assert response.status == 429
    assert b"retry-after" not in headers
    assert headers[b"ratelimit"] == b'"caller";r=0'
    assert body["error"]["data"]["retryAfterMs"] is None
    assert "25 tool calls" in body["error"]["message"]
    assert retry_after_s(Refusal("never")) is None


def test_the_body_is_a_jsonrpc_error_with_reason_limit_and_wait() -> None:
    _, headers, body = rendered(Refusal(retry_after_ns=1_500_000_000), request_id=7)
    assert body == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {
            "code": -31004,
            "message": "Too many tool calls: the limit 'caller' is reached. "
            "Try again in 1.5 seconds.",
            "data": {"reason": "rate", "limit": "caller", "retryAfterMs": 1500},
        },
    }
    assert headers[b"content-type"] == b"application/json"


def test_the_error_code_is_configurable() -> None:
    _, _, body = rendered(Refusal(), error_code=-32001)
    assert body["error"]["code"] == -32001


@pytest.mark.parametrize("request_id", [7, "7", 0, "", "ü\ud800", 2**60, 1.5])
def test_the_id_keeps_its_type(request_id: Any) -> None:
    _, _, body = rendered(Refusal(), request_id=request_id)
    assert body["id"] == request_id
    assert type(body["id"]) is type(request_id)


def test_the_id_is_omitted_where_there_is_none_to_echo() -> None:
    _, _, body = rendered(Refusal(), request_id=None)
    assert "id" not in body


def test_content_length_is_the_length_of_the_body() -> None:
    response, headers, _ = rendered(Refusal(by="grün"), request_id="ü")
    assert int(headers[b"content-length"]) == len(response.body)


def test_the_rate_limit_fields_name_the_limit_and_the_whole_policy() -> None:
    limits = {
        "shared": RateLimit(100, per="1m", burst=50),
        "off": OFF,
        "caller": RateLimit(30, per="1s", burst=60),
    }
    _, headers, _ = rendered(Refusal(remaining=3, retry_after_ns=1), policy_limits=limits)
    assert headers[b"ratelimit"] == b'"caller";r=3;t=1'
    assert headers[b"ratelimit-policy"] == b'"shared";q=50;w=30, "caller";q=60;w=2'


@pytest.mark.parametrize(
    "name", ["plain", 'quo"te', "back\\slash", "grün", "line\r\nSet-Cookie: a=b"]
)
def test_any_name_of_a_limit_makes_a_valid_structured_field(name: str) -> None:
    limits = {name: RateLimit(30, per="1s", burst=60)}
    _, headers, _ = rendered(Refusal(by=name), policy_limits=limits)
    item = STRUCTURED_STRING + r";r=\d+;t=\d+"
    assert re.fullmatch(item, headers[b"ratelimit"].decode("ascii"))
    assert re.fullmatch(
        STRUCTURED_STRING + r";q=\d+;w=[1-9]\d*", headers[b"ratelimit-policy"].decode("ascii")
    )


def test_a_refusal_by_something_that_is_no_rate_has_no_rate_limit_field() -> None:
    _, headers, _ = rendered(Refusal("breaker_open", by="server"))
    assert b"ratelimit" not in headers
    assert b"ratelimit-policy" in headers


def test_a_policy_without_rates_has_no_fields() -> None:
    _, headers, _ = rendered(Refusal("breaker_open", by="server"), policy_limits={"server": OFF})
    assert b"ratelimit-policy" not in headers


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_a_sentence_for_a_model(reason: str) -> None:
    text = sentence(Refusal(reason), cost=3)
    assert text[0].isupper() and text.endswith(".") and "{" not in text


@pytest.mark.parametrize(
    ("wait_ns", "words"),
    [
        (1, "1 milliseconds"),
        (250_000_000, "250 milliseconds"),
        (1_010_000_000, "1.1 seconds"),
        (119 * SECOND, "119.0 seconds"),
        (121 * SECOND, "3 minutes"),
        (7_199 * SECOND, "2 hours"),
        (25 * 3_600 * SECOND, "25 hours"),
    ],
)
def test_the_sentence_never_promises_too_early_a_retry(wait_ns: int, words: str) -> None:
    assert f"Try again in {words}." in sentence(Refusal(retry_after_ns=wait_ns))


def test_a_real_refusal_is_rendered_and_its_wait_is_true() -> None:
    gate, clock = make_gate(anonymous=2), Clock()
    for _ in range(2):
        assert gate.try_admit("anonymous", now_ns=clock()).admitted
    refused = gate.try_admit("anonymous", now_ns=clock())
    error = jsonrpc_refusal(refused)
    assert error.data is not None
    assert error.data["limit"] == "anonymous"
    clock.advance_s(error.data["retryAfterMs"] / 1_000)
    assert gate.try_admit("anonymous", now_ns=clock()).admitted


def test_an_error_about_an_unreadable_message_says_id_null() -> None:
    response = http_error(400, JsonRpcError(-32700, "Parse error"))
    assert json.loads(response.body) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "Parse error"},
    }
