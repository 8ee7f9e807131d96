"""What the package shows to the outside."""

from __future__ import annotations

import ctypes
import importlib.metadata
import inspect
import os
import pydoc
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import callgate
from callgate import _engine

PYTHON = Path(__file__).resolve().parent.parent
WORKSPACE = PYTHON.parent.parent
METHODS = (
    "try_admit", "settle", "key", "admit", "peek", "reconfigure", "seed", "stats", "guards",
    "metrics",
)  # fmt: skip


def test_the_version_is_that_of_the_header_and_of_the_distribution() -> None:
    version = importlib.metadata.version("callgate")
    assert callgate.__version__ == version
    major, minor, patch = map(int, version.split("."))
    header = (WORKSPACE / "include" / "callgate.h").read_text(encoding="utf-8")
    assert f"#define CALLGATE_VERSION {major << 16 | minor << 8 | patch}\n" in header


def test_everything_that_is_announced_is_there() -> None:
    assert all(hasattr(callgate, name) for name in callgate.__all__)
    assert callgate.Key.__module__ == callgate.Decision.__module__ == "callgate"


def test_help_on_a_gate_is_a_manual() -> None:
    text = pydoc.plain(pydoc.render_doc(callgate.Gate))
    for method in METHODS:
        assert re.search(rf"\b{method}\([\s|]*self,", text)
    for word in ("1 to 67,108,864", "0 to 2^64-1", "below 2^61", "'abandoned'", "ConfigError"):
        assert word in text


def test_every_method_has_a_signature_and_says_what_it_does() -> None:
    for name in METHODS:
        method = getattr(callgate.Gate, name)
        assert inspect.signature(method).parameters["self"] is not None
        assert len(method.__doc__) > 60
    parameters = inspect.signature(callgate.Gate.try_admit).parameters
    assert list(parameters)[1:] == [
        "policy", "caller", "tool", "cost", "reserve", "now_ns", "unix_ns",
    ]  # fmt: skip
    assert parameters["cost"].default == 1
    assert inspect.signature(callgate.Gate.admit).parameters.keys() == parameters.keys()


def test_the_extension_shows_nothing_but_its_entry() -> None:
    library = ctypes.CDLL(_engine.__file__)
    assert hasattr(library, "PyInit__engine")
    for name in ("callgate_admit", "callgate_version", "engine_module", "gate_try_admit"):
        assert not hasattr(library, name)


def test_the_extension_is_one_for_all_later_pythons() -> None:
    assert _engine.__file__ is not None and _engine.__file__.endswith(".abi3.so")


def test_an_extension_refuses_a_library_of_another_version(tmp_path: Path) -> None:
    header = (WORKSPACE / "include" / "callgate.h").read_text(encoding="utf-8")
    line = next(line for line in header.splitlines() if "define CALLGATE_VERSION " in line)
    other = header.replace(line, "#define CALLGATE_VERSION 0x7f0000")
    (tmp_path / "callgate.h").write_text(other, encoding="utf-8")
    target = Path(os.environ.get("CARGO_TARGET_DIR", WORKSPACE / "target"))
    library = Path(os.environ.get("CALLGATE_LIB_DIR", target / "release")) / "libcallgate.a"
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    sources = sorted(map(str, (PYTHON / "csrc").glob("*.c")))
    subprocess.run(
        [*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O0",
         "-DPy_LIMITED_API=0x030A0000", f"-I{tmp_path}", f"-I{sysconfig.get_path('include')}",
         *sources, str(library), "-o", str(tmp_path / "_engine.abi3.so")],
        check=True,
    )  # fmt: skip
    code = (
        "import importlib.util as u\n"
        "import callgate\n"
        f"path = {str(tmp_path / '_engine.abi3.so')!r}\n"
        "spec = u.spec_from_file_location('callgate._engine', path)\n"
        "try: spec.loader.exec_module(u.module_from_spec(spec))\n"
        "except ImportError as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    assert run.stdout.startswith("callgate._engine was built for version 127.0.0 of libcallgate")
