"""Builds callgate._engine, one extension for CPython 3.10 and later, with libcallgate inside.

In the source tree the library is built first, by cargo. CALLGATE_LIB_DIR (where libcallgate.a is)
and CALLGATE_INCLUDE_DIR (where callgate.h is) name a library that has been built already.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CCompilerError

HERE = Path(__file__).resolve().parent
WORKSPACE = HERE.parent.parent
LIBRARY = "libcallgate.a"
HEADER = "callgate.h"


def include_dir() -> Path:
    """The directory of callgate.h."""
    given = os.environ.get("CALLGATE_INCLUDE_DIR")
    directory = Path(given) if given else WORKSPACE / "include"
    if not (directory / HEADER).is_file():
        raise SystemExit(
            f"callgate: there is no {HEADER} in {directory}. Build from the source tree, or say "
            "where it is in CALLGATE_INCLUDE_DIR."
        )
    return directory


def version() -> str:
    """The version that callgate.h states, a byte for each part."""
    text = (include_dir() / HEADER).read_text(encoding="utf-8")
    found = re.search(r"^#define CALLGATE_VERSION (\d+)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"callgate: {HEADER} states no CALLGATE_VERSION")
    number = int(found[1])
    return f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def library() -> Path:
    """libcallgate.a: the one that CALLGATE_LIB_DIR names, or else a new build of it."""
    given = os.environ.get("CALLGATE_LIB_DIR")
    if given:
        path = Path(given).resolve() / LIBRARY
        if not path.is_file():
            raise CCompilerError(f"there is no {LIBRARY} in CALLGATE_LIB_DIR, {given}")
        return path
    return build_library()


def build_library() -> Path:
    """Runs cargo, which does nothing where the library is up to date."""
    manifest = WORKSPACE / "Cargo.toml"
    if not manifest.is_file():
        raise CCompilerError(
            "this is not callgate's source tree: build there, or say where a built library is in "
            "CALLGATE_LIB_DIR and CALLGATE_INCLUDE_DIR"
        )
    cargo = shutil.which("cargo")
    if cargo is None:
        raise CCompilerError(
            "cargo is missing: callgate's engine is written in Rust. Install Rust 1.88 or later, "
            "or say where a built library is in CALLGATE_LIB_DIR"
        )
    command = [cargo, "build", "--release", "--package", "callgate-ffi", "--manifest-path"]
    command += [str(manifest), "--message-format=json-render-diagnostics"]
    print("running", *command, flush=True)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        raise CCompilerError(f"cargo failed with status {run.returncode}")
    for line in run.stdout.splitlines():
        for name in json.loads(line).get("filenames", ()):
            if Path(name).name == LIBRARY:
                return Path(name)
    raise CCompilerError(f"cargo built no {LIBRARY}")


class BuildEngine(build_ext):
    """Links the library, once it is built, and anew where it is newer than the extension."""

    def build_extension(self, ext: Extension) -> None:
        archive = str(library())
        ext.depends = [*ext.depends, archive]
        ext.extra_objects = [archive]
        super().build_extension(ext)


class BuildPackage(build_py):
    """Starts from nothing: else modules that are gone would stay in the wheel."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "callgate", ignore_errors=True)
        super().run()


def engine() -> Extension:
    """The extension, but for the library."""
    sources = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("csrc/*.c"))
    # PyInit__engine is all that anybody outside needs to see.
    if sys.platform == "darwin":
        link_args = ["-Wl,-exported_symbol,_PyInit__engine", "-Wl,-dead_strip"]
    else:
        link_args = ["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-Wl,--as-needed"]
    return Extension(
        "callgate._engine",
        sources=sources,
        depends=["csrc/engine.h", str(include_dir() / HEADER)],
        include_dirs=[str(include_dir())],
        define_macros=[("Py_LIMITED_API", "0x030A0000")],
        py_limited_api=True,
        extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"],
        extra_link_args=link_args,
    )


if sys.platform == "win32":
    raise SystemExit("callgate: Windows is not supported yet")

setup(
    version=version(),
    ext_modules=[engine()],
    cmdclass={"build_ext": BuildEngine, "build_py": BuildPackage},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
