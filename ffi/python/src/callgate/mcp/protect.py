"""Puts the ASGI middleware where it belongs in an application made by `mcp` or `fastmcp`."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

from callgate import Gate
from callgate.mcp.api_keys import APIKeyMiddleware, APIKeys
from callgate.mcp.asgi import ASGIMiddleware
from callgate.mcp.env import default_gate

App = TypeVar("App")

_EVENT_STREAMS: Final = frozenset({"handle_sse", "sse_endpoint"})
"""What both SDKs call the function, and their documentation where it is written by hand."""


def protect(
    app: App,
    gate: Gate | None = None,
    *,
    api_keys: APIKeys | Literal["env"] | None = "env",
    **options: Any,
) -> App:
    """Meters the MCP endpoints of a Starlette application, inside its authentication.

    Returns `app`.

    `app` is what `MCPServer.streamable_http_app()`, `.sse_app()` and `FastMCP.http_app()` return,
    or an application they are mounted in. `gate` and `options` are those of `ASGIMiddleware`.

    The middleware goes between the endpoint and the check that a valid access token is there: a
    request without one gets its 401 from that check, charges nobody and makes no bucket, and a
    request with one has a verified caller. Other routes, such as those of OAuth, are left alone.

    A place is free when the client is gone, even where the tool runs on. Servers with sessions, and
    those with `json_response=True`, take the SDK's middleware (`SDKMiddleware`,
    `FastMCPMiddleware`) on the same gate as well: it holds the place until the handler has ended,
    and counts what that used.

    `api_keys` are demanded at these endpoints, unless keys are already; None demands none. By
    default (`"env"`) the environment decides: see `callgate.mcp.APIKeys.from_env`.

    Raises `ValueError` where `app` has no MCP endpoint that this function knows: wrap the
    application yourself then, `ASGIMiddleware(app, gate)`.
    """
    shared_gate = default_gate() if gate is None else gate
    keys = _keys(api_keys)
    if not _protect_routes(getattr(app, "routes", ()), shared_gate, keys, options):
        raise ValueError(
            "found no MCP endpoint of mcp or fastmcp in this application; "
            "wrap it with callgate.mcp.ASGIMiddleware instead"
        )
    return app


def _keys(api_keys: Any) -> APIKeys | None:
    if api_keys is None or isinstance(api_keys, APIKeys):
        return api_keys
    if isinstance(api_keys, str) and api_keys == "env":
        return APIKeys.from_env()
    # Not quoted: it may be the keys.
    kind = "another str" if isinstance(api_keys, str) else type(api_keys).__name__
    raise TypeError(f"api_keys must be APIKeys, 'env' or None, not {kind}")


def _protect_routes(routes: Any, gate: Gate, keys: APIKeys | None, options: dict[str, Any]) -> int:
    found = 0
    for route in routes:
        holder, endpoint, has_keys = _innermost(route)
        is_metered = isinstance(endpoint, ASGIMiddleware)
        if is_metered or _is_mcp_endpoint(endpoint):
            if not is_metered:
                endpoint = ASGIMiddleware(endpoint, gate, **options)
            # One on another gate is left to that: a mounted server may have limits of its own.
            found += endpoint.gate is gate
            if keys is not None and not has_keys:
                endpoint = APIKeyMiddleware(endpoint, keys)
            holder.app = endpoint
        elif _opens_event_stream(route):
            if keys is not None and not has_keys:
                route.app = APIKeyMiddleware(route.app, keys)
        else:
            # A mounted application. `routes` of a plain route does not exist.
            inner = getattr(endpoint, "routes", None) or ()
            found += _protect_routes(inner, gate, keys, options)
    return found


def _innermost(route: Any) -> tuple[Any, Any, bool]:
    """The endpoint of a route below any check of who calls, the object that holds it, and whether
    API keys are among what is checked."""
    holder: Any = route
    endpoint: Any = getattr(route, "app", None)
    has_keys = False
    while _is_a(endpoint, "RequireAuthMiddleware") or isinstance(endpoint, APIKeyMiddleware):
        has_keys = has_keys or isinstance(endpoint, APIKeyMiddleware)
        holder, endpoint = endpoint, endpoint.app
    return holder, endpoint, has_keys


def _is_mcp_endpoint(endpoint: Any) -> bool:
    if _is_a(endpoint, "StreamableHTTPASGIApp"):
        return True
    # The message endpoint of the older HTTP+SSE transport is a bound method.
    owner = getattr(endpoint, "__self__", None)
    return _is_a(owner, "SseServerTransport") and endpoint.__name__ == "handle_post_message"


def _opens_event_stream(route: Any) -> bool:
    """The other endpoint of the older transport: a GET that is open for as long as the session."""
    endpoint: Any = getattr(route, "endpoint", None)
    while _is_a(endpoint, "RequireAuthMiddleware"):
        endpoint = endpoint.app
    return "GET" in (getattr(route, "methods", None) or ()) and (
        _is_a(endpoint, "_SSEEndpoint") or getattr(endpoint, "__name__", None) in _EVENT_STREAMS
    )


def _is_a(value: Any, class_name: str) -> bool:
    """By name: neither SDK need be installed, and each has its own classes of these names."""
    return any(cls.__name__ == class_name for cls in type(value).__mro__)
