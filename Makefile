# The two commands: `make demo` and `make test`. Both call `make setup`, which is quick when nothing changed.
SHELL := /bin/bash
PYTHON ?= python3
# Those that the unit tests run on beside that of .venv, as far as the machine has or can get them.
PYTHONS ?= 3.12 3.13
VENV := .venv
BIN := $(VENV)/bin
# Each worker takes whole files, the longest first (tests/conftest.py). Tests wait for servers and disks: three keep two
# cores busy, and four where each test waits for a broker or an application.
WORKERS ?= 3
SERVER_WORKERS ?= 4
DISTRIBUTION := --dist loadfile --no-loadscope-reorder
PARALLEL := -n $(WORKERS) $(DISTRIBUTION)
# Where the files of tests are: in memory, where 12 GB are free, because tests wait for an fsync a hundred thousand times.
# Those of make test-full are on the disk, where some file systems show more than memory does.
ifndef ROOM
ROOM := $(shell test -w /dev/shm && awk '/MemAvailable/ && $$2 > 12000000 {print "/dev/shm"}' /proc/meminfo 2>/dev/null)
endif
IN_MEMORY = $(if $(ROOM),PYTEST_DEBUG_TEMPROOT=$(ROOM)) $(BIN)/pytest -o tmp_path_retention_policy=failed -o tmp_path_retention_count=1
# What make test-times reads.
TIMES = --junitxml .build/times/$(1).xml
ROUNDS ?= 5
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Hundreds of Python processes start in a test run; none of them is to compile the same sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo stop test test-full test-unit test-pythons test-long test-times test-shaken lint bench profile clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt scripts/setup.sh tests/harness/ivy.xml
	@PYTHON=$(PYTHON) bash scripts/setup.sh

demo: setup
	@$(BIN)/python -m demo.run

stop:
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m demo.stop; else echo "nothing to stop"; fi

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup lint
	$(IN_MEMORY) tests/unit -m "not long and not full" $(PARALLEL) $(call TIMES,unit)
	$(IN_MEMORY) tests/integration -m "not long and not full" -n $(SERVER_WORKERS) $(DISTRIBUTION) $(call TIMES,integration)

test-full: setup lint
	$(BIN)/pytest tests/unit -m "not long" $(PARALLEL) $(call TIMES,unit)
	$(BIN)/pytest tests/integration -m "not long" $(PARALLEL) $(call TIMES,integration)

# Where the time of the last run went: by system, by file, the slowest tests.
test-times: setup
	@$(BIN)/python -m scripts.test_times

# Shows that no test fails by chance: ROUNDS times in a random order, beside a process that keeps every core busy.
test-shaken: setup
	@$(if $(ROOM),PYTEST_DEBUG_TEMPROOT=$(ROOM)) $(BIN)/python -m scripts.test_shaken --rounds $(ROUNDS) --workers $(WORKERS) $(if $(TESTS),$(TESTS))

test-unit: setup
	$(IN_MEMORY) tests/unit -m "not long and not full" $(PARALLEL)

test-pythons: setup
	@bash scripts/test_pythons.sh $(PYTHONS)

test-long: setup
	$(BIN)/pytest -m "long" --timeout 7200

bench: setup
	@$(BIN)/python -m bench.restore
	@$(BIN)/python -m bench.fetch
	@$(BIN)/python -m bench.checkpoint

# SERVERS and TOPIC: a topic of yours, KIND: the kind of store it is the changelog of; without them one of its own.
profile: setup
	@$(BIN)/python -m bench.stages $(if $(SERVERS),--bootstrap-servers $(SERVERS)) $(if $(TOPIC),--topic $(TOPIC)) $(if $(KIND),--kind $(KIND))

# Whoever runs there loses what says how it is stopped.
clean: stop
	rm -rf $(VENV) .build .demo
