"""Puts the ASGI middleware where it belongs in an application made by `mcp` or `fastmcp`."""

from __future__ import annotations

from typing import Any, TypeVar

from callgate import Gate
from callgate.mcp.asgi import ASGIMiddleware
from callgate.mcp.env import default_gate

App = TypeVar("App")


def protect(app: App, gate: Gate | None = None, **options: Any) -> App:
    """Meters the MCP endpoints of a Starlette application, inside its authentication.

    Returns `app`.

    `app` is what `MCPServer.streamable_http_app()`, `.sse_app()` and `FastMCP.http_app()` return,
    or an application they are mounted in. `gate` and `options` are those of `ASGIMiddleware`.

    The middleware goes between the endpoint and the check that a valid access token is there: a
    request without one gets its 401 from that check, charges nobody and makes no bucket, and a
    request with one has a verified caller. Other routes, such as those of OAuth, are left alone.

    Raises `ValueError` where `app` has no MCP endpoint that this function knows: wrap the
    application yourself then, `ASGIMiddleware(app, gate)`.
    """
    shared_gate = default_gate() if gate is None else gate
    if not _protect_routes(getattr(app, "routes", ()), shared_gate, options):
        raise ValueError(
            "found no MCP endpoint of mcp or fastmcp in this application; "
            "wrap it with callgate.mcp.ASGIMiddleware instead"
        )
    return app


def _protect_routes(routes: Any, gate: Gate, options: dict[str, Any]) -> int:
    found = 0
    for route in routes:
        holder, endpoint = _innermost(route)
        if isinstance(endpoint, ASGIMiddleware) and endpoint.gate is gate:
            found += 1
        elif _is_mcp_endpoint(endpoint):
            holder.app = ASGIMiddleware(endpoint, gate, **options)
            found += 1
        else:
            # A mounted application. `routes` of a plain route does not exist.
            found += _protect_routes(getattr(endpoint, "routes", None) or (), gate, options)
    return found


def _innermost(route: Any) -> tuple[Any, Any]:
    """The endpoint of a route below any check for an access token, and the object that holds it."""
    holder: Any = route
    endpoint: Any = getattr(route, "app", None)
    while _is_a(endpoint, "RequireAuthMiddleware"):
        holder, endpoint = endpoint, endpoint.app
    return holder, endpoint


def _is_mcp_endpoint(endpoint: Any) -> bool:
    if _is_a(endpoint, "StreamableHTTPASGIApp"):
        return True
    # The message endpoint of the older HTTP+SSE transport is a bound method.
    owner = getattr(endpoint, "__self__", None)
    return _is_a(owner, "SseServerTransport") and endpoint.__name__ == "handle_post_message"


def _is_a(value: Any, class_name: str) -> bool:
    """By name: neither SDK need be installed, and each has its own classes of these names."""
    return any(cls.__name__ == class_name for cls in type(value).__mro__)
