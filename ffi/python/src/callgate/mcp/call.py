"""Runs one tool call under a gate, inside a server: what the middlewares of both SDKs share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from callgate.mcp.charge import Charge
from callgate.mcp.message import Entry
from callgate.mcp.meter import Meter, Verdict
from callgate.mcp.refusal import UNAVAILABLE, JsonRpcError, jsonrpc_refusal
from callgate.mcp.usage import stated_units
from callgate.vocabulary import Outcome

RefuseWith = Literal["error", "result"]
"""How a refusal leaves: as a JSON-RPC error, or as a tool result with `isError: true` whose text a
model reads."""

CLIENT_FAULTS: Final = frozenset({-32600, -32601, -32602, -32021, -32042})
"""JSON-RPC codes that say nothing about the server's health: invalid request, method not found,
invalid parameters, a capability that the client lacks, a page that its user is to visit first."""

Result = TypeVar("Result")


async def run_call(
    meter: Meter,
    *,
    entry: Entry,
    source: Any,
    scope: Mapping[str, Any],
    error_code: int,
    call: Callable[[], Awaitable[Result]],
    refuse: Callable[[JsonRpcError], Result],
    is_client_fault: Callable[[Exception], bool],
    is_client_fault_text: Callable[[str], bool] = lambda _: False,
) -> Result:
    """Charge and run one call, or refuse it.

    A call that the server makes in the course of one it was charged for costs nothing, and so does
    one that an outer middleware on the same gate has charged: it keeps that one's places until it
    has ended, too.
    """
    if meter.is_within_charged_call():
        return await call()
    hold = meter.take_receipt(scope)
    if hold is None:
        verdict = await meter.decide([entry], source, scope)
        if verdict.refused:
            return refuse(_error(verdict, error_code))
        hold = verdict.hold
    outcome: Outcome = "failure"
    try:
        with meter.charged_call(hold.charge):
            result = await call()
        outcome = _outcome_of(result, is_client_fault_text)
        _note_usage(meter, hold.charge, result)
        return result
    except Exception as error:
        # Bad arguments and unknown tools say nothing about the server's health, and no caller
        # should be able to open its breaker with them. The call stays charged.
        outcome = "abandoned" if is_client_fault(error) else "failure"
        raise
    except BaseException:
        outcome = "abandoned"
        raise
    finally:
        hold.settle(outcome)


def check_refuse_with(refuse_with: str) -> None:
    """Raises `ValueError` for anything but the two values of `RefuseWith`."""
    if refuse_with not in ("error", "result"):
        raise ValueError(f"refuse_with must be 'error' or 'result', not {refuse_with!r}")


def scope_of_request(request: Any, user: Any) -> Mapping[str, Any]:
    """The ASGI scope of the request that carried the call; without one, a scope of `user` only."""
    scope = getattr(request, "scope", None)
    return scope if isinstance(scope, Mapping) else {"user": user}


def _error(verdict: Verdict, error_code: int) -> JsonRpcError:
    if verdict.decision is None:
        return UNAVAILABLE
    return jsonrpc_refusal(verdict.decision, cost=verdict.cost, error_code=error_code)


def _note_usage(meter: Meter, charge: Charge, result: Any) -> None:
    if meter.usage_meta is not None:
        units = stated_units(result, meter.usage_meta)
        if units is not None:
            charge.usage.state(units)


def _outcome_of(result: Any, is_client_fault_text: Callable[[str], bool]) -> Outcome:
    if not _field(result, "isError", "is_error"):
        return "success"
    content = _field(result, "content", "content")
    text = _field(content[0], "text", "text") if isinstance(content, list) and content else None
    return "abandoned" if isinstance(text, str) and is_client_fault_text(text) else "failure"


def _field(value: Any, key: str, attribute: str) -> Any:
    """Of what is JSON already, or an object still."""
    return value.get(key) if isinstance(value, Mapping) else getattr(value, attribute, None)
