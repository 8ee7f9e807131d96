# What a person runs here; `make help` lists it. CI runs the same: .ci/run.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
CARGO ?= cargo
NODE ?= node
NPM ?= npm
GO ?= go
DIR ?= tests/vectors
SECONDS ?= 60

VENV := target/venv
# Of the environment in which the Python package is tested as a user would install it.
RUN := $(CURDIR)/$(VENV)/bin/python
PEERS := target/peers
# What the proofs run by, in versions that are known to do it.
TOOLS := target/tools
CARGO_MUTANTS_VERSION := 27.1.0
CARGO_LLVM_COV_VERSION := 0.9.1
ENGINE_SOURCES := Cargo.toml Cargo.lock $(shell find core ffi/src -type f) ffi/Cargo.toml ffi/build.rs include/callgate.h
PACKAGE_SOURCES := $(shell find ffi/python/csrc ffi/python/src -type f -not -name '*.so' -not -path '*egg-info*' -not -path '*__pycache__*') \
	ffi/python/setup.py ffi/python/pyproject.toml
NODE_SOURCES := $(shell find ffi/node/csrc ffi/node/src ffi/node/scripts -type f) ffi/node/tsconfig.json
GO_SOURCES := $(shell find ffi/go -name '*.go' -o -name '*.h' -o -name 'go.*')

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
PACKAGED := target/package
# For the shell: make itself may remember a folder as it was before.
WHEEL := $(PACKAGED)/callgate-$(VERSION)-*.whl
NPM_TARBALL := $(PACKAGED)/callgate-$(VERSION).tgz
GO_PROXY := $(PACKAGED)/go
C_ARCHIVE := $(PACKAGED)/callgate-$(VERSION)-linux-$(shell uname -m).tar.gz

say = @printf '\n\033[1m== %s\033[0m\n' '$(1)'

.PHONY: help demo test check test-rust test-python test-node test-go test-e2e test-package test-killed vectors \
	package e2e-servers bench bench-python bench-peers header format clean fuzz mutants coverage verify verify-table \
	verify-peers verify-sanitizers verify-abi verify-architectures verify-firmware verify-mutants verify-fuzz

help: ## What there is to run
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed ## A real MCP server behind callgate, and everybody who calls it
	$(call say,demo)
	$(RUN) demo/demo.py

test: check test-rust test-python test-node test-go test-e2e test-package ## Everything that must hold
	$(call say,everything that must hold does)

check: ## Formats, lints, types, the header's freshness
	$(call say,format)
	$(CARGO) fmt --all --check
	$(call say,lints: Rust)
	$(CARGO) clippy --locked --all-targets --features callgate-core/std -- -D warnings
	$(CARGO) clippy --locked --package callgate-ffi -- -D warnings
	$(CARGO) clippy --locked --package callgate-core --no-default-features -- -D warnings
	$(call say,documentation: Rust)
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --package callgate-core --features std

test-rust: ## Units, properties, the model, vectors, stress, C conformance
	$(call say,core)
	$(CARGO) test --locked --package callgate-core --features std
	$(call say,the C library)
	$(CARGO) build --locked --release --package callgate-ffi
	$(call say,what cuts across: header and library and model and vectors and stress and C)
	$(CARGO) test --locked --package callgate-tests
	$(call say,benches build)
	$(CARGO) bench --locked --package callgate-benches --no-run

test-python: $(VENV)/installed ## The Python package, as installed from its wheel
	$(call say,types)
	cd ffi/python && $(RUN) -m mypy
	$(call say,Python package)
	cd ffi/python && $(RUN) -m pytest -q

test-node: target/node/built ## The npm package: types and tests
	$(call say,types: Node)
	cd ffi/node && $(NPM) run --silent types
	$(call say,Node package)
	cd ffi/node && $(NPM) test --silent

test-go: target/go/library ## The Go module: formats, lints, tests with the race detector
	$(call say,format and lints: Go)
	unformatted=$$(gofmt -l ffi/go tests/e2e/go benches/peers/go packaging verify/peers verify/abi); \
		[ -z "$$unformatted" ] || { echo "gofmt would change: $$unformatted" >&2; exit 1; }
	$(GO) build -C ffi/go/tools -o $(CURDIR)/target/go/staticcheck honnef.co/go/tools/cmd/staticcheck
	cd ffi/go && $(GO) vet ./... && $(CURDIR)/target/go/staticcheck ./...
	cd tests/e2e/go && $(GO) vet ./... && $(CURDIR)/target/go/staticcheck ./...
	cd benches/peers/go && $(GO) vet ./... && $(CURDIR)/target/go/staticcheck ./...
	cd verify/peers && $(GO) vet ./... && $(CURDIR)/target/go/staticcheck ./...
	$(call say,Go module)
	cd ffi/go && $(GO) test ./...
	$(call say,Go module with the race detector)
	cd ffi/go && $(GO) test -race ./...
	$(call say,Go module with every pointer that passes to C checked)
	cd ffi/go && GOEXPERIMENT=cgocheck2 $(GO) test .
	$(call say,Go module with every call into C by cgo)
	cd ffi/go && $(GO) vet -tags callgate_cgo . && $(GO) test -tags callgate_cgo .

test-e2e: $(VENV)/installed e2e-servers ## Real servers of five SDKs, driven over HTTP
	$(call say,end to end)
	$(RUN) -m pytest -q tests/e2e

e2e-servers: target/node/built target/go/library target/e2e/node
	$(call say,servers in Go)
	$(GO) build -C tests/e2e/go -o $(CURDIR)/target/e2e/ ./cmd/...

test-killed: $(VENV)/installed target/node/built ## Ten thousand clients killed in the middle of streamed calls, in Python and in Node; minutes
	$(call say,ten thousand clients killed in the middle of streamed calls: Python)
	cd ffi/python && CALLGATE_KILLED=10000 $(RUN) -m pytest -q tests/test_mcp_disconnects.py
	$(call say,two thousand clients of each of five middlewares: Node)
	cd ffi/node && CALLGATE_KILLED=2000 $(NODE) scripts/test.mjs test/mcp/disconnects.test.mjs

test-package: package ## Each package, installed and used where there is nothing else
	$(call say,the wheel in an environment of its own)
	packaging/test/python.sh $(WHEEL) $(PYTHON)
	$(call say,the npm package in an empty folder)
	packaging/test/node.sh $(NPM_TARBALL)
	$(call say,the Go module in a module of its own)
	packaging/test/go.sh $(GO_PROXY)
	$(call say,the C archive)
	packaging/test/c.sh $(C_ARCHIVE)

package: $(VENV)/installed $(NPM_TARBALL) $(GO_PROXY)/built $(C_ARCHIVE) ## Wheel, npm tarball, Go module and C archive, in target/package
	$(call say,packages)
	@ls -1 $(CURDIR)/$(WHEEL) $(CURDIR)/$(NPM_TARBALL) $(CURDIR)/$(C_ARCHIVE)
	@echo '$(CURDIR)/$(GO_PROXY), which goes into GOPROXY as file://$(CURDIR)/$(GO_PROXY)'

vectors: $(VENV)/installed target/node/built target/go/library ## The scenario files of DIR through every surface: make vectors DIR=path
	$(call say,vectors of $(DIR))
	$(GO) build -C ffi/go -o $(CURDIR)/target/go/vectors ./internal/vectors
	CALLGATE_PYTHON=$(RUN) CALLGATE_NODE=$(NODE) CALLGATE_GO=$(CURDIR)/target/go/vectors \
		$(CARGO) run --locked --release --quiet --package callgate-tests --bin vectors -- $(DIR)

bench: ## What a decision costs, beside governor in the same run
	$(call say,benches: a few minutes; the reports go to target/criterion)
	$(CARGO) bench --locked --package callgate-benches
	$(MAKE) bench-python

bench-python: $(VENV)/installed ## What a decision costs from Python
	$(RUN) benches/decide.py

bench-peers: $(VENV)/installed $(PEERS)/python $(PEERS)/node target/node/built target/go/library ## callgate beside what users would pick instead, in one run
	$(call say,peers in Python and Node and Go and Rust: some minutes)
	$(PEERS)/python/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall $(WHEEL)
	$(GO) build -C benches/peers/go -o $(CURDIR)/$(PEERS)/go .
	$(PYTHON) benches/peers/compare.py \
		"Python=$(PEERS)/python/bin/python benches/peers/python/bench.py" \
		"Node=$(NODE) benches/peers/node/bench.mjs" "Go=$(PEERS)/go"
	$(CARGO) bench --locked --package callgate-benches -- '^(admit|refuse)'

verify: verify-table verify-peers verify-sanitizers verify-abi verify-architectures verify-firmware verify-mutants verify-fuzz ## The slower proofs; each part alone: verify-PART
	$(call say,each proof held and each fault built in was noticed)

verify-table: ## The table: loom, the Promela model, stalled threads and killed processes
	$(call say,the table under loom)
	$(PYTHON) verify/loom/check.py
	$(call say,the model of the table)
	verify/model/check.sh
	$(call say,threads that stop and processes that are killed at any instruction)
	CALLGATE_ROUNDS=1000 $(CARGO) test --locked --package callgate-tests --test stalled

verify-peers: target/go/library ## The same traffic through governor, golang.org/x/time/rate and callgate
	$(call say,beside governor)
	$(CARGO) test --locked --package callgate-tests --test peers
	$(call say,beside golang.org/x/time/rate)
	cd verify/peers && $(GO) test ./...

verify-sanitizers: $(VENV)/installed target/node/built ## Thread, address and undefined-behaviour sanitizers; valgrind
	$(call say,sanitizers)
	verify/sanitizers/run.sh

verify-abi: target/node/installed ## The binary interface against what is committed and released
	$(call say,binary interface)
	verify/abi/run.sh

verify-architectures: ## Vectors, C and threads on i686, aarch64, s390x; a build for riscv32imac
	$(call say,other architectures)
	verify/architectures/run.sh

verify-firmware: ## Vectors on Cortex-M4 and M0; flash and RAM
	$(call say,bare metal)
	verify/firmware/run.sh

verify-mutants: $(TOOLS)/bin/cargo-mutants ## Every 20th small change to the engine, others at each commit, must make a test fail
	$(call say,mutants of core: one in twenty)
	CARGO_MUTANTS=$(CURDIR)/$< $(PYTHON) verify/mutants/check.py --shard $$(($$(git rev-list --count HEAD) % 20))/20

mutants: $(TOOLS)/bin/cargo-mutants ## Each small change to the engine must make a test fail; half an hour
	$(call say,mutants of core)
	CARGO_MUTANTS=$(CURDIR)/$< $(PYTHON) verify/mutants/check.py

coverage: $(TOOLS)/bin/cargo-llvm-cov ## How much of the engine the Rust tests reach, line by line in target/llvm-cov/html
	$(call say,coverage of core)
	verify/coverage.sh $(CURDIR)/$<

verify-fuzz: $(VENV)/fuzz target/go/library target/node/built target/fuzz/node ## A short run of each fuzz target
	$(call say,fuzz targets for some seconds each)
	fuzz/run.sh all 20

fuzz: $(VENV)/fuzz target/go/library target/node/built target/fuzz/node ## Each fuzz target for SECONDS=60
	$(call say,fuzz targets for $(SECONDS) s each)
	fuzz/run.sh all $(SECONDS)

header: ## Writes include/callgate.h anew from the sources
	CALLGATE_WRITE_HEADER=1 $(CARGO) test --quiet --package callgate-tests --test header

format: ## Formats the Rust sources
	$(CARGO) fmt --all

clean: ## Removes all that was built
	rm -rf target ffi/python/build ffi/python/src/*.egg-info ffi/python/src/callgate/*.so
	rm -rf ffi/node/build ffi/node/dist ffi/node/prebuilds ffi/node/source ffi/node/node_modules benches/peers/node/node_modules tests/e2e/node/node_modules fuzz/http/node/node_modules
	rm -rf ffi/go/lib ffi/go/library.h

$(VENV)/requirements: ffi/python/requirements-test.txt
	$(call say,Python environment in $(VENV))
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "the tests and the demo need CPython 3.11 or later (set PYTHON); the package itself runs from 3.10")'
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(VENV)/installed: $(VENV)/requirements $(ENGINE_SOURCES) $(PACKAGE_SOURCES)
	$(call say,Python package: one wheel for CPython 3.10 and later in $(PACKAGED))
	rm -rf $(PACKAGED)/callgate-*.whl ffi/python/build
	$(VENV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(PACKAGED) ./ffi/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(PACKAGED)/callgate-*.whl
	touch $@

$(TOOLS)/bin/cargo-mutants $(TOOLS)/bin/cargo-llvm-cov:
	$(call say,$(@F))
	$(CARGO) install --quiet --locked --root $(TOOLS) --version =$($(shell echo $(@F) | tr a-z- A-Z_)_VERSION) $(@F)

$(VENV)/fuzz: $(VENV)/installed fuzz/requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement fuzz/requirements.txt
	touch $@

target/fuzz/node: fuzz/http/node/package-lock.json
	$(call say,what the fuzz target in Node is made with)
	cd fuzz/http/node && $(NPM) ci --no-audit --no-fund --loglevel=error
	mkdir -p $(@D)
	touch $@

target/node/installed: ffi/node/package.json ffi/node/package-lock.json
	$(call say,what the npm package is built and tested with)
	cd ffi/node && $(NPM) ci --no-audit --no-fund --loglevel=error
	mkdir -p $(@D)
	touch $@

target/node/built: target/node/installed $(ENGINE_SOURCES) $(NODE_SOURCES)
	$(call say,Node package)
	cd ffi/node && $(NPM) run --silent build
	touch $@

target/go/library: $(ENGINE_SOURCES) ffi/go/build.sh
	$(call say,the C library for the Go module)
	ffi/go/build.sh
	mkdir -p $(@D)
	touch $@

target/e2e/node: tests/e2e/node/package-lock.json
	$(call say,servers in Node)
	cd tests/e2e/node && $(NPM) ci --no-audit --no-fund --loglevel=error
	mkdir -p $(@D)
	touch $@

$(NPM_TARBALL): target/node/built $(wildcard ffi/node/*.md)
	$(call say,npm package)
	mkdir -p $(@D)
	cd ffi/node && $(NPM) pack --silent --pack-destination $(CURDIR)/$(@D)

$(GO_PROXY)/built: target/go/library $(GO_SOURCES)
	$(call say,Go module)
	rm -rf $(@D)
	$(GO) run -C ffi/go/tools ./modulezip $(CURDIR)/$(@D)
	touch $@

$(C_ARCHIVE): $(ENGINE_SOURCES) $(wildcard packaging/c/* LICENSE-*)
	$(call say,C archive)
	packaging/c/archive.sh $(@D)

$(PEERS)/python: benches/peers/python/requirements.txt
	$(call say,peers in Python)
	$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(PEERS)/node: benches/peers/node/package-lock.json
	$(call say,peers in Node)
	cd benches/peers/node && $(NPM) ci --no-audit --no-fund --loglevel=error
	mkdir -p $(@D)
	touch $@
