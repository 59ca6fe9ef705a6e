# `make demo`, `make check` and `make test` need Python 3.11 to 3.13, pip and make, and nothing else.

# The newest that starts: pyenv puts commands on PATH for versions that are not selected.
ifndef PYTHON
PYTHON := $(shell for each in python3.13 python3.12 python3.11; do \
	$$each -c "" 2>/dev/null && echo $$each && break; done)
endif
# Where this repository is; `make address` writes it into notebooks, links to Colab and metadata.
REPOSITORY := https://github.com/OWNER/tff_pcdd
VENV := .venv
BIN := $(VENV)/bin
DEMO_DIR ?= runs/demo
# Tests that run at the same time; each of them may take a few gigabytes. One more than this
# project's machines have cores, as some wait for processes that they started.
TEST_WORKERS ?= 3
# The tests of a file run in one process, which makes once what they share. They start a hundred
# processes, none of which has to compile this package where the variable is set.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=$(TEST_WORKERS) --dist=loadfile

# The server has an environment of its own, for it wants other versions than TFF.
SERVING_VENV := .venv-serving
# So does the documentation site.
DOCS_VENV := .venv-docs
# And the software that the benchmark sets beside this package.
PEERS_VENV := .venv-peers
EXPORT_DIR = exported
HOST = 127.0.0.1
PORT = 8501

CHECK_PYTHON = "$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	2>/dev/null || { echo "tff_pcdd needs Python 3.11, 3.12 or 3.13; '$(or $(PYTHON),python3)' is none" \
	"of them. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.13" >&2; exit 1; }

.PHONY: demo check test test-all coverage matrix faults mutation lint format notebooks address serve docs \
	locks install install-tests install-tracking install-ray install-serving install-docs install-peers clean

demo: install
	$(BIN)/python -m tasks.compare --flagfile=flags/demo.flags --output_dir=$(DEMO_DIR)

# What is quick. The tests that are left out trace or train networks.
TRAINING = federated methods publication training test_matrix.py
check: lint
	$(PYTEST) -m "not slow and not integration" $(addprefix --ignore=tests/,$(TRAINING))

# All but what is marked `rare`: less than twenty minutes on 2 quiet cores.
test: install-tests
	$(MAKE) lint
	$(PYTEST) -m "not rare"

# All tests, before a release.
test-all: install-tests
	$(MAKE) lint
	$(PYTEST) --matrix=pairs

# All tests, and the share of lines that they run. Every call within TFF and AutoGraph is traced, so
# tests that train take about twice as long as in `make test-all`.
coverage: install-tests
	$(PYTEST) --matrix=pairs --cov=tff_pcdd --cov=tasks --cov-report=term:skip-covered

# All combinations of method, aggregator, normalization, participation, client and export; about
# half an hour on 2 cores. `make test` and `make test-all` train samples of them.
matrix: install
	$(BIN)/python -m tests.matrix
	$(PYTEST) --dist=worksteal tests/test_matrix.py --matrix=all

# All injected faults, in about 80 minutes on 2 cores; docs/trust.md shows what came out. `make test`
# and `make test-all` run samples of them.
faults: install install-serving
	$(BIN)/python -m tests.faults --output=build/faults.json

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What the quick tests of the methods notice; about an hour. It resumes; docs/quality.md explains it.
mutation: install
	$(BIN)/python -m tests.mutation --files tff_pcdd/methods --output build/mutation.csv

serve: install-serving
	$(SERVING_VENV)/bin/python serving/adapter.py \
		--export_dir=$(EXPORT_DIR) --host=$(HOST) --port=$(PORT)

# Runs all notebooks and saves them with what comes out.
notebooks: install
	$(BIN)/python colab/execute.py

address:
	"$(PYTHON)" colab/address.py $(REPOSITORY)

# The documentation site, in build/docs.
docs: install-docs
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

# With GPU=1, TensorFlow and CUDA for NVIDIA GPUs replace the build for processors.
install: $(VENV)/.installed $(if $(GPU),$(VENV)/.installed-gpu)

# What all tests need. pip uses one core, so the other environments are installed beside this one.
install-tests:
	@$(CHECK_PYTHON)
	$(MAKE) install-serving install-docs & others=$$!; \
		$(MAKE) install install-tracking install-ray; status=$$?; \
		wait $$others && exit $$status

# Clients of MLflow and Weights & Biases, for --tracking.
install-tracking: $(VENV)/.installed-tracking

# Ray, for --runtime=ray.
install-ray: $(VENV)/.installed-ray

install-serving: $(SERVING_VENV)/.installed

install-docs: $(DOCS_VENV)/.installed

# PyTorch, Flower and pfl-research, FedJAX, and BlazeFL, for the sections `peers` and `blazefl` of
# `tasks.benchmark`; 3 GB. The CPU build of PyTorch is not on every package index.
install-peers: $(PEERS_VENV)-torch/.installed $(PEERS_VENV)-jax/.installed \
	$(PEERS_VENV)-blazefl/.installed

# Nothing is installed that is not in the lock, with the content that it had when it was locked.
# TFF's metadata deny the Pythons that it runs on.
QUIET = --quiet --disable-pip-version-check
LOCKED = $(QUIET) --no-deps --ignore-requires-python --require-hashes

# The stamps are newer than the locks once all of them is installed.
$(VENV)/.installed: requirements.lock pyproject.toml
	@$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(LOCKED) -r requirements.lock
	$(BIN)/python -m pip install $(QUIET) --no-deps --no-build-isolation -e .
	@touch $@

# The two builds of TensorFlow consist of the same files.
$(VENV)/.installed-gpu: requirements-gpu.lock $(VENV)/.installed
	$(BIN)/python -m pip uninstall --quiet --yes tensorflow-cpu tensorflow
	$(BIN)/python -m pip install $(LOCKED) -r requirements-gpu.lock
	@touch $@

$(VENV)/.installed-tracking: requirements-tracking.lock $(VENV)/.installed
	$(BIN)/python -m pip install $(LOCKED) -r requirements-tracking.lock
	@touch $@

$(VENV)/.installed-ray: requirements-ray.lock $(VENV)/.installed
	$(BIN)/python -m pip install $(LOCKED) -r requirements-ray.lock
	@touch $@

$(SERVING_VENV)/.installed: serving/requirements.lock
	@$(CHECK_PYTHON)
	test -x $(SERVING_VENV)/bin/python || $(PYTHON) -m venv $(SERVING_VENV)
	$(SERVING_VENV)/bin/python -m pip install $(LOCKED) -r serving/requirements.lock
	@touch $@

$(DOCS_VENV)/.installed: docs/requirements.lock
	@$(CHECK_PYTHON)
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install $(LOCKED) -r docs/requirements.lock
	@touch $@

$(PEERS_VENV)-%/.installed: peers/requirements-%.lock
	@$(CHECK_PYTHON)
	@test $* != blazefl || "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 12))' || { \
		echo "BlazeFL needs Python 3.12 or newer;" \
		"name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.13" >&2; exit 1; }
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install $(LOCKED) -r $<
	@touch $@

# Writes the lock files anew, with the newest versions; needs uv. What is compiled for the oldest
# Python has to have wheels for the others, which the tests check.
COMPILE = uv pip compile --quiet --upgrade --python-version 3.11 --python-platform x86_64-manylinux_2_31 \
	--generate-hashes --no-header --no-annotate
TENSORFLOW = 2.21.0
ALL = build/locks/all.lock
# What reads data of one's own.
READERS = --extra parquet --extra xlsx --extra dicom
# What requirements.lock has is not repeated in the locks that are installed over it.
ADDED = --constraint $(ALL) $$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package=\1/p' requirements.lock)

locks:
	mkdir -p build/locks
	echo 'tensorflow; sys_platform == "none"' > build/locks/overrides.txt
	echo 'tensorflow-cpu==$(TENSORFLOW)' > build/locks/cpu.in
	echo 'tensorflow[and-cuda]==$(TENSORFLOW)' > build/locks/gpu.in
	$(COMPILE) pyproject.toml build/locks/cpu.in --override build/locks/overrides.txt --group federated \
		--extra dev --extra notebooks $(READERS) --extra tracking --extra ray -o $(ALL)
	$(COMPILE) pyproject.toml build/locks/cpu.in --override build/locks/overrides.txt --group federated \
		--extra dev --extra notebooks $(READERS) --constraint $(ALL) -o requirements.lock
	for extra in tracking ray; do \
		$(COMPILE) pyproject.toml --override build/locks/overrides.txt --extra $$extra $(ADDED) \
			-o requirements-$$extra.lock || exit; done
	$(COMPILE) build/locks/gpu.in $(ADDED) -o requirements-gpu.lock
	for folder in serving docs; do \
		$(COMPILE) $$folder/requirements.in -o $$folder/requirements.lock || exit; done

clean:
	rm -rf $(VENV) $(SERVING_VENV) $(DOCS_VENV) $(PEERS_VENV)-torch $(PEERS_VENV)-jax \
		$(PEERS_VENV)-blazefl build *.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache
