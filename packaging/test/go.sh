#!/usr/bin/env bash
# Uses the Go module from a module of its own, by way of a proxy of files: go.sh PROXY_FOLDER
set -euo pipefail
proxy=$(realpath "$1")
sources=$(realpath "$(dirname "$0")/go")
version=$(cat "$proxy/callgate.dev/callgate/@v/list")
known=$(go env GOMODCACHE)/cache/download
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
mkdir "$scratch/project"
cp "$sources/use.go" "$scratch/project"
cd "$scratch/project"

# A cache of its own, so that no older copy of this version can be taken; for what else it needs,
# what was downloaded before comes first.
export GOMODCACHE=$scratch/modules GOFLAGS=-mod=mod GOWORK=off
export GOPROXY="file://$proxy,file://$known,$(go env GOPROXY)" GONOSUMDB=callgate.dev

go mod init example.com/use 2>/dev/null
go get "callgate.dev/callgate@$version" 2>get.log || { cat get.log >&2; exit 1; }
go mod tidy 2>tidy.log || { cat tidy.log >&2; exit 1; }
go list -m -f '{{.Path}} {{.Version}} {{if .Replace}}replaced{{end}}' callgate.dev/callgate
go run .
