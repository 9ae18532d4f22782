# `make demo` and `make test` need a Python 3.11 or newer and nothing else; each makes its own .venv first.
# Works with GNU make 3.81, which macOS ships. `make help` lists the targets.

# The Python that makes the virtual environment; found by tools/find_python.sh when empty.
PYTHON ?=
VENV ?= .venv
# The one with Ray, for `make cluster-test`.
VENV_CLUSTER ?= .venv-cluster
# Where `make demo` leaves its report, data and logs.
DEMO_OUT ?= demo-output
# Further options of `fleet-simulator demo`, such as DEMO_FLAGS=--devices=50
DEMO_FLAGS ?=
# Where `make soak` writes its rounds down; called again it goes on there.
SOAK_OUT ?= soak-output
# Test processes: a number, or 0 to run them in one process. Four more than there are cores, since many tests wait.
TEST_JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 4)
# Which tests `make test` plays; TEST_MARKS= plays the long ones in between, as CI does, TEST_MARKS=long those alone.
TEST_MARKS ?= not long
# Further options of pytest, such as PYTEST_FLAGS="-k outbox -x"
PYTEST_FLAGS ?=
# Further options of tools/build_release.py, such as RELEASE_FLAGS=--downgrade
RELEASE_FLAGS ?=
# `make lock UPGRADE=--upgrade` takes newer versions; without it only what pyproject.toml forces changes.
UPGRADE ?=

BIN := $(VENV)/bin
# Every file is pinned by hash; a source distribution would fetch an unpinned build system, so only wheels are taken.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
INSTALL_PINNED = $(INSTALL) --require-hashes --only-binary :all:
INSTALL_PROJECT = $(INSTALL) --no-index --no-deps --no-build-isolation --editable .
LOCK = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	--python-version 3.11 $(UPGRADE)

# Whoever sets it means small images; here hundreds of processes would each compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test cluster-test soak check lock deb release clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.installed-dev ## the virtual environment with everything for development

demo: $(VENV)/.installed-demo ## the whole story in under a minute, then a report in demo-output/
	@$(BIN)/fleet-simulator demo --out $(DEMO_OUT) $(DEMO_FLAGS)

test: $(VENV)/.installed-dev ## the tests, but the long ones that boot, install and kill (minutes on two cores)
	@$(BIN)/python -m pytest -m "$(TEST_MARKS)" --numprocesses $(TEST_JOBS) --dist worksteal $(PYTEST_FLAGS)

cluster-test: $(VENV_CLUSTER)/.installed ## a run's workers on a Ray cluster of several nodes on this machine (some minutes)
	@$(VENV_CLUSTER)/bin/python -m pytest $(PYTEST_FLAGS) tests/api/test_workers_port.py tests/system/test_cluster.py

soak: $(VENV)/.installed-dev ## agents and their service killed SOAK_CYCLES=15000 times; goes on in soak-output/ (an hour or so)
	@$(BIN)/python -m tests.system.fault.soak --cycles $${SOAK_CYCLES:-15000} --seed $${SOAK_SEED:-1} --out $(SOAK_OUT)

check: $(VENV)/.installed-dev ## lint, format, types, import walls, lock files, links
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --quiet --no-header --numprocesses 0 tests/unit/test_project.py tests/unit/test_docs.py

# dev.txt is the widest; the others take its versions, so that a machine never holds two truths.
lock: $(VENV)/.installed-dev ## write requirements/ from pyproject.toml (needs the package index)
	@$(LOCK) pyproject.toml --extra dev --output-file requirements/dev.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --output-file requirements/base.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra simulator --output-file requirements/simulator.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra gateway --output-file requirements/gateway.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra device --output-file requirements/device.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra cluster --output-file requirements/cluster.txt
	@$(LOCK) --constraints requirements/dev.txt --group build --output-file requirements/build.txt

deb: $(VENV)/.installed-dev ## the packages for Debian and Raspberry Pi OS in dist/deb/ (needs dpkg-deb and the package index)
	@$(BIN)/python tools/build_deb.py

release: $(VENV)/.installed-dev ## signed releases for update_agent in dist/release/; KEY=release.key is of device-agent keys
	@$(BIN)/python tools/build_release.py --key $(KEY) $(RELEASE_FLAGS)

clean: ## remove what these targets made
	rm -rf $(VENV) $(VENV_CLUSTER) $(DEMO_OUT) $(SOAK_OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find agent gateway simulator tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- the virtual environment ---------------------------------------------------------------------------------------
# A stamp per set of requirements: a changed file installs again, an unchanged one costs nothing.

$(VENV)/.made:
	@if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		python=$$(PYTHON="$(PYTHON)" sh tools/find_python.sh) && \
		echo "setting up $(VENV) with $$python" && \
		"$$python" -m venv --clear $(VENV); \
	fi && touch $@

$(VENV)/.installed-demo: $(VENV)/.made requirements/simulator.txt requirements/build.txt pyproject.toml
	@echo "installing what the demo needs (once; a minute or so)"
	@$(INSTALL_PINNED) -r requirements/simulator.txt -r requirements/build.txt
	@$(INSTALL_PROJECT)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made requirements/dev.txt pyproject.toml
	@echo "installing what the tests need (once; a minute or two)"
	@$(INSTALL_PINNED) -r requirements/dev.txt
	@$(INSTALL_PROJECT)
	@touch $(VENV)/.installed-demo $@

$(VENV_CLUSTER)/.installed: $(VENV)/.made requirements/cluster.txt requirements/dev.txt pyproject.toml
	@echo "installing what the tests of the cluster need (once; a minute or so)"
	@$(BIN)/python -m venv --clear $(VENV_CLUSTER)
	@$(MAKE) --no-print-directory BIN=$(VENV_CLUSTER)/bin $(VENV_CLUSTER)/.filled
	@touch $@

$(VENV_CLUSTER)/.filled:
	@$(INSTALL_PINNED) -r requirements/cluster.txt -r requirements/dev.txt
	@$(INSTALL_PROJECT)
