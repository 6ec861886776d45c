# `make demo` and `make test` set up what they need by themselves; a second call starts in seconds.
# PYTHON=/path/to/python chooses the interpreter, VENV=/elsewhere the place of the environment.

VENV ?= .venv
STAMP := $(VENV)/.ready
export PYTHON

# Tests that run side by side; many start processes of their own.
WORKERS ?= 2

.PHONY: setup demo test test-slurm bench lint doctor
.DEFAULT_GOAL := setup

setup: $(STAMP)
	@echo 'set-up: $(VENV) is ready'

# The stamp is made only when every step of the set-up has succeeded.
$(STAMP): mmlape/requirements.txt setup.py
	@python="$$(sh bootstrap/choose_python.sh $(VENV))" && "$$python" bootstrap $(VENV) && touch $@

demo: $(STAMP)
	@$(VENV)/bin/python -m mmlape demo $(ARGS)

test: lint
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Needs Debian's slurm-wlm and munge, and root: it starts a controller of its own and stops it again.
test-slurm: $(STAMP)
	@PYTHON=$(abspath $(VENV)/bin/python) tests/slurm/run.sh $(ARGS)

bench: $(STAMP)
	@$(VENV)/bin/python -m benchmarks $(or $(ARGS),all)

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

doctor: $(STAMP)
	@$(VENV)/bin/python -m mmlape doctor
