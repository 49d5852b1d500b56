# Two commands need nothing to be done before: `make demo` and `make test`. Both create the environment in
# $(VENV) the first time and only say so the second time.
#
#   make demo                          run a three-stage pipeline on this machine, end with its bundle
#   make demo PROMPT="What is a relay?"
#   make test                          format, lint, types, layers, tests
#   make docs                          write the tables of the documentation that follow from the code
#   make bench                         how fast, beside other libraries; BENCH="--help" says more
#   make bench-process                 the same for child processes
#   make torture                       5,000 child processes, random torments; TORTURE="--help" says more
#   make PYTHON=python3.13 VENV=.venv-3.13 test

PYTHON ?= python3
VENV ?= .venv
PROMPT ?= What is an actor?
BIN := $(VENV)/bin

.PHONY: help demo test check format lint types layers tests sim docs bench bench-process torture clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# -- the environment -------------------------------------------------------------------------------------------

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: say PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "swactor needs Python 3.11 or newer; $(PYTHON) is older: say PYTHON=..."; exit 1; }
	@echo "== creating the environment in $(VENV) ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "== installing swactor and what it runs on (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	@echo "== installing swactor with its development tools (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-bench: pyproject.toml | $(BIN)/python
	@echo "== installing swactor and the libraries it is compared with (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

# -- the main job ----------------------------------------------------------------------------------------------

demo: $(VENV)/installed
	@$(BIN)/swactor demo run "$(PROMPT)"

sim: $(VENV)/installed
	@$(BIN)/python -m sim run sim/scenarios/three_stages.toml --seed $(or $(SEED),1)

# -- the checks ------------------------------------------------------------------------------------------------

test: format lint types layers tests
check: test

format: $(VENV)/installed-dev
	@echo "== format"
	@$(BIN)/ruff format --check --quiet .

lint: $(VENV)/installed-dev
	@echo "== lint"
	@$(BIN)/ruff check --quiet .

types: $(VENV)/installed-dev
	@echo "== types"
	@$(BIN)/mypy

layers: $(VENV)/installed-dev
	@echo "== layers"
	@$(BIN)/lint-imports

tests: $(VENV)/installed-dev
	@echo "== tests"
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup

docs: $(VENV)/installed
	@$(BIN)/python -m docs.tables

bench: $(VENV)/installed-bench
	@$(BIN)/python benches/runtime.py $(BENCH)

bench-process: $(VENV)/installed
	@$(BIN)/python benches/process.py $(BENCH)

torture: $(VENV)/installed
	@$(BIN)/python benches/torture.py $(TORTURE)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
