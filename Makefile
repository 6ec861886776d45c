# `make demo` and `make test` set up what they need by themselves; a second call starts in seconds.
# PYTHON=/path/to/python chooses the interpreter, VENV=/elsewhere the place of the environment.

VENV ?= .venv
STAMP := $(VENV)/.ready
export PYTHON

.PHONY: setup demo test lint doctor
.DEFAULT_GOAL := setup

setup: $(STAMP)
	@echo 'set-up: $(VENV) is ready'

# The stamp is made only when every step of the set-up has succeeded.
$(STAMP): mmlape/requirements.txt setup.py
	@python="$$(sh bootstrap/choose_python.sh $(VENV))" && "$$python" bootstrap $(VENV) && touch $@

demo: $(STAMP)
	@$(VENV)/bin/python -m mmlape demo $(ARGS)

test: lint
	@$(VENV)/bin/python -m pytest $(ARGS)

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

doctor: $(STAMP)
	@$(VENV)/bin/python -m mmlape doctor
