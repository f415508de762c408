# Everything runs in .venv, which is made from a Python >= 3.11 or uv found on this machine. `make help` lists the targets.
SHELL := /bin/sh
BIN := .venv/bin
READY := .venv/.ready
CODE := blackboard tests benchmarks agents docs

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types chaos bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' Makefile

$(READY): pyproject.toml constraints.txt .ci/environment
	@PYTHON="$(PYTHON)" sh .ci/environment
	@touch $@

demo: $(READY) ## a team of agents works through documents while its workers and its server are killed
	@$(BIN)/python agents/survey.py --chaos

test: $(READY) ## the tests, against real servers
	$(BIN)/python -m pytest -n auto

check: lint types test ## lint, types, tests

lint: $(READY) ## ruff, import rules, Lua
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	@if command -v luacheck >/dev/null; then luacheck --quiet --no-color blackboard; else echo "luacheck is not installed: Lua is not linted"; fi

types: $(READY) ## mypy strict everywhere, pyright strict on the library
	$(BIN)/mypy $(wildcard $(CODE))
	$(BIN)/pyright --pythonpath $(BIN)/python

chaos: $(READY) ## the long crash and race tests, and every test on every server
	$(BIN)/python -m pytest -m chaos --timeout 3600 --hypothesis-profile anew
	$(BIN)/python -m pytest -n auto --every-server --hypothesis-profile anew tests/artifacts tests/cases tests/integrations tests/memory tests/runs

bench: $(READY) ## every benchmark, each with the servers it needs
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

docs: $(READY) ## write the generated reference, then check the links and run the code of the pages
	$(BIN)/python docs/write_settings.py
	$(BIN)/python docs/write_reference.py
	$(BIN)/python -m pytest tests/test_docs.py tests/test_reference.py tests/test_trips.py

clean: ## remove the environment and what the tools left
	rm -rf .venv build dist .coverage htmlcov .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
