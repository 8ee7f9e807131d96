"""What include/callgate.h declares, told by a C compiler.

    python3 header.py layout HEADER     every struct and field with its offset and size, every constant
    python3 header.py types HEADER      a C source that makes each function's type visible to abidw
    python3 header.py later HEADER      the header of a later version, otherwise the same
    python3 header.py larger HEADER     the same with a field more in each struct that a caller fills in
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STRUCT = re.compile(r"^typedef struct (callgate_\w+) \{\n(.*?)^\} \1;$", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  [^/\n]*?(\w+)(?:\[[^;]*\])*;$", re.MULTILINE)
FUNCTION = re.compile(r"^[a-z][\w ]*[ *](callgate_\w+)\(", re.MULTILINE)
CONSTANT = re.compile(r"^#define (CALLGATE_\w+) \S+$", re.MULTILINE)
STATUS = re.compile(r"^  (CALLGATE_\w+) = -?\d+,$", re.MULTILINE)
VERSION = re.compile(r"^#define CALLGATE_VERSION (\d+)$", re.MULTILINE)

# What a program fills in and the library reads: there a field more is one that isn't there.
FILLED_IN = ("callgate_config", "callgate_limit", "callgate_call")


def layout_source(text: str) -> str:
    lines = []
    for name, body in STRUCT.findall(text):
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        fields = FIELD.findall(body)
        assert fields, f"no field of {name} was found"
        for field in fields:
            place = f"offsetof({name}, {field}), sizeof((({name} *)0)->{field})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", {place});')
    for name in CONSTANT.findall(text) + STATUS.findall(text):
        lines.append(f'printf("{name} %lld\\n", (long long){name});')
    body = "\n    ".join(lines)
    return f'#include <stdio.h>\n#include "callgate.h"\nint main(void) {{\n    {body}\n    return 0;\n}}\n'


def types_source(text: str) -> str:
    """A variable of each function's type: compilers describe no function that is only declared."""
    names = FUNCTION.findall(text)
    assert names, "no function was found"
    variables = "".join(f"__typeof__(&{name}) type_of_{name};\n" for name in names)
    return f'#include "callgate.h"\nenum callgate_status type_of_statuses;\n{variables}'


def later(text: str) -> str:
    found = VERSION.search(text)
    assert found, "the header states no version"
    return VERSION.sub(f"#define CALLGATE_VERSION {int(found[1]) + 0x100}", text)


def larger(text: str) -> str:
    text = later(text)
    for name in FILLED_IN:
        assert f"}} {name};" in text, f"no {name} in the header"
        text = text.replace(f"}} {name};", f"  uint64_t of_a_later_version;\n}} {name};")
    return text


def run(source: str, header: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "layout"
        (program.with_suffix(".c")).write_text(source)
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-std=c11", "-Wall", "-Werror", f"-I{header.parent}"]
        subprocess.run([*command, f"{program}.c", "-o", str(program)], check=True)
        return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout


def main() -> None:
    what, header = sys.argv[1], Path(sys.argv[2])
    text = header.read_text()
    makers = {"layout": layout_source, "types": types_source, "later": later, "larger": larger}
    made = makers[what](text)
    sys.stdout.write(run(made, header) if what == "layout" else made)


if __name__ == "__main__":
    main()
