"""Runs one tool call under a gate, inside a server: what the middlewares of both SDKs share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

from callgate.mcp.meter import Meter, Verdict
from callgate.mcp.refusal import UNAVAILABLE, JsonRpcError, jsonrpc_refusal
from callgate.vocabulary import Outcome

RefuseWith = Literal["error", "result"]
"""How a refusal leaves: as a JSON-RPC error, or as a tool result with `isError: true` whose text a
model reads."""

Result = TypeVar("Result")


async def run_call(
    meter: Meter,
    *,
    tool: str | None,
    source: Any,
    scope: Mapping[str, Any],
    error_code: int,
    call: Callable[[], Awaitable[Result]],
    refuse: Callable[[JsonRpcError], Result],
    is_client_fault: Callable[[Exception], bool],
) -> Result:
    """Charge and run one call, or refuse it.

    A call that the server makes in the course of one it was charged for costs nothing, and so does
    one that an outer middleware on the same gate has charged.
    """
    if meter.is_within_charged_call():
        return await call()
    if meter.take_receipt(scope):
        with meter.charged_call():
            return await call()
    verdict = await meter.decide([tool], source, scope)
    if verdict.refused:
        return refuse(_error(verdict, error_code))
    outcome: Outcome = "failure"
    try:
        with meter.charged_call():
            result = await call()
        outcome = "failure" if _is_error_result(result) else "success"
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
        verdict.settle(outcome)


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
    return jsonrpc_refusal(verdict.decision, error_code=error_code)


def _is_error_result(result: Any) -> bool:
    if isinstance(result, Mapping):
        return bool(result.get("isError"))
    return bool(getattr(result, "is_error", False))
