# The two commands: `make demo` and `make test`. Both call `make setup`, which is quick when nothing changed.
SHELL := /bin/bash
PYTHON ?= python3
# Those that the unit tests run on beside that of .venv, as far as the machine has or can get them.
PYTHONS ?= 3.12 3.13
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: setup demo stop test test-unit test-pythons test-long lint bench clean

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
	$(BIN)/pytest -m "not integration and not long" -n 2 --dist loadfile
	$(BIN)/pytest -m "integration and not long" -n 2 --dist loadfile

test-unit: setup
	$(BIN)/pytest -m "not integration and not long" -n 2 --dist loadfile

test-pythons: setup
	@bash scripts/test_pythons.sh $(PYTHONS)

test-long: setup
	$(BIN)/pytest -m "long" --timeout 7200

bench: setup
	@$(BIN)/python -m bench.restore

clean:
	rm -rf $(VENV) .build .demo
