#!/usr/bin/env bash
# Uses the npm package in an empty folder, where there is no compiler: node.sh TARBALL
set -euo pipefail
tarball=$(realpath "$1")
sources=$(realpath "$(dirname "$0")/node")
version=$(basename "$tarball" .tgz | cut -d- -f2)
scratch=$(mktemp -d)
rm=$(command -v rm)
trap '"$rm" -rf "$scratch"' EXIT

# All that there is to run. npm runs install scripts with sh.
mkdir "$scratch/bin" "$scratch/project"
for tool in node npm sh env; do
    ln -s "$(command -v "$tool")" "$scratch/bin/$tool"
done
cp "$sources"/use.* "$scratch/project"
cd "$scratch/project"
export PATH=$scratch/bin HOME=$scratch npm_config_cache=$scratch/cache npm_config_update_notifier=false
for tool in cc gcc clang cargo make; do
    ! command -v "$tool" >/dev/null || { echo "$tool is there" >&2; exit 1; }
done

echo '{"private": true}' >package.json
# Nothing from a registry: the package depends on no other.
npm install --offline --no-audit --no-fund --loglevel=error "$tarball"
node --throw-deprecation use.mjs "$version"
