"""Admits one call of a caller and refuses the next, with the package as it was installed."""

import sys
from importlib.metadata import version
from pathlib import Path

import callgate
from callgate import Gate, RateLimit, Refused
from callgate.mcp import ASGIMiddleware

assert Path(callgate.__file__).is_relative_to(sys.prefix), callgate.__file__
assert version("callgate") == sys.argv[1] == callgate.__version__
assert Path(callgate.__file__).with_name("py.typed").exists()

gate = Gate(
    limits={"caller": RateLimit(1, per="1h")},
    policies={"authenticated": [("caller", "caller")], "anonymous": [("caller", "shared")]},
    capacity=16,
)
with gate.admit("authenticated", caller="user:1001"):
    pass
try:
    gate.admit("authenticated", caller="user:1001")
except Refused as refused:
    assert 3_500 * 10**9 < refused.decision.retry_after_ns <= 3_600 * 10**9
else:
    raise AssertionError("the second call was admitted")
assert ASGIMiddleware(lambda scope, receive, send: None, gate).gate is gate
print("admitted one, refused one")
