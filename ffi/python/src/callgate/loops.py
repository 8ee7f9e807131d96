"""Which framework the present event loop is of."""

from __future__ import annotations

import asyncio
import sys
from typing import Any


def is_in_asyncio() -> bool:
    """Whether the present task is one of asyncio's."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def running_trio() -> Any:
    """The module `trio` where the present task is one of its own, else None."""
    # Where it runs, somebody has imported it.
    trio: Any = sys.modules.get("trio")
    try:
        return None if trio is None or trio.lowlevel.current_task() is None else trio
    except RuntimeError:
        return None
