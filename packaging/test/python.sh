#!/usr/bin/env bash
# Uses the wheel in an environment that holds nothing else: python.sh WHEEL [PYTHON]
set -euo pipefail
wheel=$(realpath "$1")
python=${2:-python3}
sources=$(realpath "$(dirname "$0")/python")
version=$(basename "$wheel" | cut -d- -f2)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

"$python" -m venv environment
# Nothing from an index, nothing built: the wheel needs no other package and no compiler.
environment/bin/python -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
env -u PYTHONPATH environment/bin/python -W error "$sources/use.py" "$version"
