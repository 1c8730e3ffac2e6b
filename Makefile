# make demo: see it work.  make test: the test suite without large models.  make check: lint, types, import contracts.
# make test-models: the tests with real models of sentence-transformers, which bring torch.
# make test-page: the page of `retriever eval` in a headless Chromium: the one in PATH, or playwright's own.
# make test-clients: the live tests over every kind of client that can be borrowed, about 15 minutes.
# make bench: ratios against the raw client, about six minutes.
# make bench-memory: what a store of memory costs, about five minutes.
# make bench-peers: the same work through other libraries, beside ours, in three minutes; bench-scale: up to 1,000,000
# documents, in half an hour. They write docs/benchmarks.md and docs/scale.md.
# make quality: nDCG@10 and recall@10 on judged collections, which RETRIEVER_DATA names; see benchmarks/README.md.
# make docs: the manual, from docs/ into site/; a broken link or reference fails it.
# make soak: readers and writers at once on one index for ten minutes, and what must hold then; SOAK_S=60 for one.
# make test-live: the live tests against VALKEY_URL's server.  make test-docker: against each of docker/compose*.yaml.
# PYTHON chooses the interpreter (3.11 or newer): make test PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# An environment of its own: 1.8 GB of torch and models, which nothing else needs, and what is tested without them
# is tested where they are not.
MODELS := .venv-models
MODELS_PIP := $(MODELS)/bin/python -m pip --disable-pip-version-check
# The version that the tests were written with. On Linux pip takes its build with CUDA, several GB; with
# PIP_EXTRA_INDEX_URL set to PyTorch's index of CPU builds it takes that one, whose version, 2.13.0+cpu, is higher.
TORCH := torch==2.13.0
# The other libraries bring their own pins.
PEERS := .venv-peers
PEERS_PIP := $(PEERS)/bin/python -m pip --disable-pip-version-check
DOCS := .venv-docs
DOCS_PIP := $(DOCS)/bin/python -m pip --disable-pip-version-check

# Not .venv: where playwright is installed, make test would need a browser.
PAGE := .venv-page
PAGE_PIP := $(PAGE)/bin/python -m pip --disable-pip-version-check

COMPOSE := $(wildcard docker/compose*.yaml)

.PHONY: demo test test-pure test-embedded test-models test-page test-clients test-live test-docker url wheel bench bench-memory bench-mcp bench-peers bench-scale quality soak docs check lint types contracts clean

demo: $(VENV)/.demo
	@$(BIN)/retriever demo

# Each of the processes starts an engine of its own; where VALKEY_URL names one server, there is one.
test: $(VENV)/.dev
	$(BIN)/pytest $(if $(VALKEY_URL),,--numprocesses auto --maxprocesses 4 --dist loadfile)

# The suite in three parts: without a server, with the one from pip, and the wheel.
test-pure: $(VENV)/.dev
	$(BIN)/pytest -m 'not live' --ignore tests/test_packaging.py

test-embedded: $(VENV)/.dev
	env -u VALKEY_URL $(BIN)/pytest -m live

# Budgets on two cores, pip's cache filled: make check 1.5 minutes, make docs 0.5, make test 7, make test-page 1, and
# beside the first two make test-models 2, with their installations; .ci/run 15 in all.
test-models: $(MODELS)/.models
	$(MODELS)/bin/pytest tests/models

test-page: $(PAGE)/.page
	$(PAGE)/bin/pytest tests/page

# Sixteen times: valkey-py and redis-py, blocking and awaited, RESP2 and RESP3, decoding or not.
test-clients: $(VENV)/.dev
	env -u VALKEY_URL CLIENTS=all $(BIN)/pytest -m borrowed

wheel: $(VENV)/.dev
	$(BIN)/hatchling build -d dist
	$(BIN)/pytest tests/test_packaging.py

# Any server: the tests name their own indexes and keys, remove them, and never flush.
test-live: url $(VENV)/.dev
	$(BIN)/pytest -m live

url:
	@test -n "$$VALKEY_URL" || { \
		echo "VALKEY_URL is not set; name the server to test: VALKEY_URL=valkey://localhost:6379 make test-live" >&2; exit 1; }

# One file: make test-docker/compose.yaml. Every file, also after one has failed: make --keep-going test-docker
test-docker: $(COMPOSE:%=test-%)

$(COMPOSE:%=test-%): test-%:
	@trap 'exit 130' INT TERM; trap 'docker compose -f $* down --volumes' EXIT; \
	docker compose -f $* run --build --rm tests || { docker compose -f $* logs --tail 100; exit 1; }

bench: $(VENV)/.demo
	$(BIN)/python benchmarks/query.py
	$(BIN)/python benchmarks/upsert.py
	$(BIN)/python benchmarks/recall.py
	$(BIN)/python benchmarks/retrieve.py

bench-memory: $(VENV)/.dev
	$(BIN)/python benchmarks/memory.py

bench-mcp: $(VENV)/.dev
	$(BIN)/python benchmarks/mcp_server.py

bench-peers: $(PEERS)/.peers
	$(PEERS)/bin/python benchmarks/peers.py --page

bench-scale: $(PEERS)/.peers
	$(PEERS)/bin/python benchmarks/scale.py --page --plot docs/images/scale.svg

quality: $(VENV)/.dev
	$(BIN)/python benchmarks/quality.py

SOAK_S := 600

soak: $(VENV)/.demo
	$(BIN)/python benchmarks/soak.py --seconds $(SOAK_S)

# Offline once it is installed. Not --quiet, which hides warnings from --strict as well. The variable keeps a notice
# about another generator out of the output.
docs: $(DOCS)/.docs
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict
	@echo "The manual is in site/; open site/index.html, or, to search it: python3 -m http.server -d site"

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
	rm -rf $(VENV) $(MODELS) $(PAGE) $(PEERS) $(DOCS) dist site

$(VENV)/.demo: pyproject.toml | $(BIN)/pip
	@echo "Installing into $(VENV): about 135 MB to download the first time ..."
	@$(PIP) install --quiet -e '.[embedded,cli]'
	@touch $@

# Old releases of pip know no --group, hence its upgrade.
$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing into $(VENV), with what tests and checks need ..."
	@$(PIP) install --quiet 'pip>=25.1'
	@$(PIP) install --quiet -e '.[embedded,cli,memory,mcp,eval]' --group test --group lint
	@touch $@ $(VENV)/.demo

# torch before the rest, which would take whatever version is the newest.
$(MODELS)/.models: pyproject.toml | $(MODELS)/bin/pip
	@echo "Installing into $(MODELS), with torch: about 450 MB to download the first time ..."
	@$(MODELS_PIP) install --quiet 'pip>=25.1'
	@$(MODELS_PIP) install --quiet $(TORCH)
	@$(MODELS_PIP) install --quiet -e '.[embedded,sentence-transformers]' --group models
	@touch $@

$(PEERS)/.peers: pyproject.toml | $(PEERS)/bin/pip
	@echo "Installing into $(PEERS) ..."
	@$(PEERS_PIP) install --quiet 'pip>=25.1'
	@$(PEERS_PIP) install --quiet -e '.[embedded]' --group peers
	@touch $@

$(DOCS)/.docs: pyproject.toml | $(DOCS)/bin/pip
	@echo "Installing into $(DOCS) ..."
	@$(DOCS_PIP) install --quiet 'pip>=25.1'
	@$(DOCS_PIP) install --quiet --group docs
	@touch $@

BROWSERS := chromium-headless-shell chromium chromium-browser google-chrome

$(PAGE)/.page: pyproject.toml | $(PAGE)/bin/pip
	@echo "Installing into $(PAGE): about 140 MB to download the first time ..."
	@$(PAGE_PIP) install --quiet 'pip>=25.1'
	@$(PAGE_PIP) install --quiet -e '.[eval]' --group page
	@test -n "$$CHROMIUM$$(which $(BROWSERS))" || $(PAGE)/bin/playwright install --only-shell chromium || { \
		echo "no Chromium: on Debian, apt-get install chromium-headless-shell; or name one: CHROMIUM=/path" >&2; exit 1; }
	@touch $@

%/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, and $(PYTHON) is not; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $* || { \
		echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
