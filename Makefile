# What a person runs here; `make help` lists it. CI runs the same: .ci/run.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
CARGO ?= cargo
DIR ?= tests/vectors
SECONDS ?= 60

VENV := target/venv
# Of the environment in which the Python package is tested as a user would install it.
RUN := $(CURDIR)/$(VENV)/bin/python
WHEELS := target/wheels
ENGINE_SOURCES := Cargo.toml Cargo.lock $(shell find core ffi/src -type f) ffi/Cargo.toml ffi/build.rs include/callgate.h
PACKAGE_SOURCES := $(shell find ffi/python/csrc ffi/python/src -type f -not -name '*.so' -not -path '*egg-info*' -not -path '*__pycache__*') \
	ffi/python/setup.py ffi/python/pyproject.toml

say = @printf '\n\033[1m== %s\033[0m\n' '$(1)'

.PHONY: help demo test check test-rust test-python test-e2e test-killed vectors bench bench-python fuzz header format clean

help: ## What there is to run
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed ## A real MCP server behind callgate, and everybody who calls it
	$(call say,demo)
	$(RUN) demo/demo.py

test: check test-rust test-python test-e2e ## Everything that must hold
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

test-e2e: $(VENV)/installed ## A real server, driven over HTTP
	$(call say,end to end)
	$(RUN) -m pytest -q tests/e2e

test-killed: $(VENV)/installed ## Ten thousand clients killed in the middle of streamed calls, six ways; minutes
	$(call say,ten thousand clients killed in the middle of streamed calls)
	cd ffi/python && CALLGATE_KILLED=10000 $(RUN) -m pytest -q tests/test_mcp_disconnects.py

vectors: $(VENV)/installed ## The scenario files of DIR through every surface: make vectors DIR=path
	$(call say,vectors of $(DIR))
	CALLGATE_PYTHON=$(RUN) $(CARGO) run --locked --release --quiet --package callgate-tests --bin vectors -- $(DIR)

bench: ## What a decision costs, beside governor in the same run
	$(call say,benches: a few minutes; the reports go to target/criterion)
	$(CARGO) bench --locked --package callgate-benches
	$(MAKE) bench-python

bench-python: $(VENV)/installed ## What a decision costs from Python
	$(RUN) benches/decide.py

fuzz: ## Random operations against the engine for SECONDS=60; needs cargo-fuzz
	$(call say,fuzz for $(SECONDS) s)
	cd fuzz && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run operations -- -max_total_time=$(SECONDS)

header: ## Writes include/callgate.h anew from the sources
	CALLGATE_WRITE_HEADER=1 $(CARGO) test --quiet --package callgate-tests --test header

format: ## Formats the Rust sources
	$(CARGO) fmt --all

clean: ## Removes all that was built
	rm -rf target ffi/python/build ffi/python/src/*.egg-info ffi/python/src/callgate/*.so

$(VENV)/requirements: ffi/python/requirements-test.txt
	$(call say,Python environment in $(VENV))
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "the tests and the demo need CPython 3.11 or later (set PYTHON); the package itself runs from 3.10")'
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(VENV)/installed: $(VENV)/requirements $(ENGINE_SOURCES) $(PACKAGE_SOURCES)
	$(call say,Python package: one wheel for CPython 3.10 and later in $(WHEELS))
	rm -rf $(WHEELS) ffi/python/build
	$(VENV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEELS) ./ffi/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(WHEELS)/callgate-*.whl
	touch $@
