"""callgate decides, in-process and in well under a microsecond, whether a tool call may run.

from callgate import Gate, RateLimit

gate = Gate(
    limits={"caller": RateLimit(30, per="1s", burst=60)},
    policies={"authenticated": [("caller", "caller")]},
)
with gate.admit("authenticated", caller="user:1001"):   # raises Refused
    ...

decision = gate.try_admit("authenticated", caller="user:1001")   # never raises on a refusal
if not decision:
    print(f"try again in {decision.retry_after_ns} ns")

`callgate.mcp` puts a gate in front of an MCP server.
"""

from callgate import _engine
from callgate._engine import Decision, Key, Permit
from callgate.call import Call
from callgate.errors import CallError, ConfigError, Refused
from callgate.gate import Gate
from callgate.limits import OFF, RateLimit
from callgate.reports import Report, Stats

__version__: str = _engine.VERSION

__all__ = [
    "OFF",
    "Call",
    "CallError",
    "ConfigError",
    "Decision",
    "Gate",
    "Key",
    "Permit",
    "RateLimit",
    "Refused",
    "Report",
    "Stats",
    "__version__",
]
