# `make demo` and `make test` need Python 3.11, pip and make, and nothing else.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
DEMO_DIR ?= runs/demo

.PHONY: demo test lint format install clean

demo: install
	$(BIN)/python -m tasks.compare --flagfile=flags/demo.flags --output_dir=$(DEMO_DIR)

test: install lint
	$(BIN)/python -m pytest --cov=tff_pcdd --cov=tasks --cov-report=term:skip-covered

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(VENV)/.installed

# The stamp is newer than the lock once all of it is installed.
$(VENV)/.installed: requirements.lock setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
		echo "tff_pcdd needs Python 3.11, which TensorFlow Federated runs on; '$(PYTHON)' is not one." \
		"Install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		-r requirements.lock -e .
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .coverage
