"""callgate decides, in-process and in well under a microsecond, whether a tool call may run.

from callgate import ConcurrencyLimit, Gate, Quota, RateLimit

gate = Gate(
    limits={"caller": RateLimit(30, per="1s", burst=60), "server": ConcurrencyLimit(3),
            "tokens": Quota(50_000, per="1d", tz="Asia/Shanghai")},
    policies={"authenticated": [("caller", "caller"), ("tokens", "caller"), ("server", "shared")]},
)
with gate.admit("authenticated", caller="user:1001") as call:   # raises Refused
    answer, tokens = run()
    call.used(tokens)

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
from callgate.limits import OFF, ConcurrencyLimit, Quota, RateLimit
from callgate.reports import Guards, Report, Stats
from callgate.seeder import Seeder

__version__: str = _engine.VERSION

__all__ = [
    "OFF",
    "Call",
    "CallError",
    "ConcurrencyLimit",
    "ConfigError",
    "Decision",
    "Gate",
    "Guards",
    "Key",
    "Permit",
    "Quota",
    "RateLimit",
    "Refused",
    "Report",
    "Seeder",
    "Stats",
    "__version__",
]
