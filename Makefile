# `make demo` and `make test` create the environment that they need; later calls start in seconds.
# PYTHON=/path/to/python selects the interpreter, VENV=/elsewhere the folder of the environment.

VENV ?= .venv
STAMP := $(VENV)/.ready
export PYTHON

# Parallel tests; many start processes of their own.
WORKERS ?= 2

.PHONY: setup demo check test test-slurm mutants bench lint doctor
.DEFAULT_GOAL := setup

setup: $(STAMP)
	@echo 'set-up: $(VENV) is ready'

# The stamp is written only after every step of the set-up has succeeded.
$(STAMP): mmlape/requirements.txt setup.py
	@python="$$(sh bootstrap/choose_python.sh $(VENV))" && "$$python" bootstrap $(VENV) && touch $@

demo: $(STAMP)
	@$(VENV)/bin/python -m mmlape demo $(ARGS)

test: lint
	@$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Needs Debian's slurm-wlm and munge, and root: it starts and stops a controller of its own.
test-slurm: $(STAMP)
	@PYTHON=$(abspath $(VENV)/bin/python) tests/slurm/run.sh $(ARGS)

# Mutation testing: the wrong formulas, then mutmut; hours on two cores. ARGS='mmlape.models.position*' runs a part of
# mutmut's.
mutants: $(STAMP)
	@$(if $(ARGS),,$(VENV)/bin/python tests/wrong_formulas.py)
	@$(VENV)/bin/python -m pip install -q $$(grep '^mutmut' mmlape/requirements.txt)
	@OMP_NUM_THREADS=1 $(VENV)/bin/python -m mutmut run --max-children $(WORKERS) $(ARGS)
	@$(VENV)/bin/python -m mutmut results

bench: $(STAMP)
	@$(VENV)/bin/python -m benchmarks $(or $(ARGS),all)

# Style, and the order of the packages.
lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/python tests/import_graph.py

# Lint, and the fast tests of what has changed since main; ARGS=COMMIT compares with another commit.
check: lint
	@$(VENV)/bin/python tests/check.py $(ARGS)

doctor: $(STAMP)
	@$(VENV)/bin/python -m mmlape doctor
