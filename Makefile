# `make demo` and `make test` need a Python 3.11 or newer and nothing else; each makes its own .venv first.
# Works with GNU make 3.81, which macOS ships. `make help` lists the targets.

# The Python that makes the virtual environment; found by tools/find_python.sh when empty.
PYTHON ?=
VENV ?= .venv
# The one with Ray, for `make cluster-test`.
VENV_CLUSTER ?= .venv-cluster
# Where `make demo` leaves labels and report.
DEMO_OUT ?= demo-output
# Further options of `fleet-simulator demo`, such as DEMO_FLAGS=--keep
DEMO_FLAGS ?=
# Where `make soak` writes its rounds down; called again it goes on there.
SOAK_OUT ?= soak-output
# Where `make steady` writes samples and result; the logs of a run that failed are there too.
STEADY_OUT ?= steady-output
# Test processes: a number, or 0 to run them in one process. Four more than there are cores, since many tests wait.
TEST_JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 4)
# Which tests `make test` plays; TEST_MARKS= plays the long ones in between, as CI does.
TEST_MARKS ?= not long
# Further options of pytest, such as PYTEST_FLAGS="-k outbox -x"
PYTEST_FLAGS ?=
# The releases of Debian that `make systemd` boots, such as SYSTEMD_RELEASES=13 PYTEST_FLAGS="-k doctor"
SYSTEMD_RELEASES ?= 13 12
# What `make device-test` plays in each of those releases.
DEVICE_TESTS ?= tests/e2e/test_systemd.py tests/e2e/test_deb.py
# Further options of tools/build_release.py, such as RELEASE_FLAGS="--minimum-version 0.3.0"
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
.PHONY: help setup demo test test-long chaos exhaustive faults cluster-test cluster-faults servers systemd device-test emulated-test systemd-records soak steady powercuts labelsproof check format pictures bench lock deb release update-cuts clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.installed-dev ## the virtual environment with everything for development

demo: $(VENV)/.installed-demo ## the whole story in under a minute, then a report in demo-output/
	@$(BIN)/fleet-simulator demo --out $(DEMO_OUT) $(DEMO_FLAGS)

test: $(VENV)/.installed-dev ## all tests but the long ones (under ten minutes on two cores)
	@$(BIN)/python -m pytest -m "$(TEST_MARKS)" --numprocesses $(TEST_JOBS) --dist worksteal $(PYTEST_FLAGS)

test-long: $(VENV)/.installed-dev ## the long tests: systems booted, packages installed, processes killed in rounds (twenty minutes)
	@$(BIN)/python -m pytest -m long --numprocesses $(TEST_JOBS) --dist worksteal $(PYTEST_FLAGS)

chaos: $(VENV)/.installed-dev ## broker, gateway, agent, service: killed 500 times under load (half an hour)
	@CHAOS_ROUNDS=$${CHAOS_ROUNDS:-500} $(BIN)/python -m pytest --numprocesses 0 tests/fault/test_gateway_chaos.py

faults: $(VENV)/.installed-dev ## an agent through 200 faults of the network, drawn at random (half an hour)
	@FAULT_ROUNDS=$${FAULT_ROUNDS:-200} $(BIN)/python -m pytest --numprocesses 0 tests/fault/test_network_faults.py

exhaustive: $(VENV)/.installed-dev ## the matrices and random histories that `make test` plays a part of (ten minutes)
	@EXHAUSTIVE=1 $(BIN)/python -m pytest --numprocesses $(TEST_JOBS) --dist worksteal $(PYTEST_FLAGS) \
		$$(grep -rl --include='test_*.py' "tests.exhaustive import" tests) tests/contract/test_openapi_fuzz.py

servers: $(VENV)/.installed-dev ## every consumer at servers of every single choice and all pairs; prints a matrix (an hour)
	@SERVER_CASES=all $(BIN)/python -m pytest --numprocesses $(TEST_JOBS) --dist worksteal -p tests.servers.matrix \
		$(PYTEST_FLAGS) tests/servers

cluster-test: $(VENV_CLUSTER)/.installed ## a run's workers on a Ray cluster of several nodes on this machine (a quarter of an hour)
	@$(VENV_CLUSTER)/bin/python -m pytest $(PYTEST_FLAGS) tests/contract/test_workers_port.py tests/cluster

cluster-faults: $(VENV_CLUSTER)/.installed ## nodes, workers, heads and networks of a Ray cluster ended or cut, ten times each (root; three quarters of an hour)
	@CLUSTER_ROUNDS=$${CLUSTER_ROUNDS:-10} $(VENV_CLUSTER)/bin/python -m pytest $(PYTEST_FLAGS) tests/cluster/test_cluster_faults.py

systemd: $(VENV)/.installed-dev ## the agent under the systemd of Debian 13, then of Debian 12 (needs root; a quarter of an hour)
	@for release in $(SYSTEMD_RELEASES); do \
		SYSTEMD_RELEASE=$$release $(BIN)/python -m pytest --numprocesses 0 $(PYTEST_FLAGS) tests/e2e/test_systemd.py || exit; \
	done

device-test: $(VENV)/.installed-dev ## all tests on a booted Debian 13, then 12: the agent's unit, the packages, enrolling (needs root)
	@for release in $(SYSTEMD_RELEASES); do \
		SYSTEMD_RELEASE=$$release $(BIN)/python -m pytest --numprocesses 0 $(PYTEST_FLAGS) $(DEVICE_TESTS) || exit; \
	done

emulated-test: $(VENV)/.installed-dev ## the arm64 package on an emulated machine that boots Debian (needs root and qemu; half an hour)
	@EMULATED=1 $(BIN)/python -m pytest --numprocesses 0 -rs $(PYTEST_FLAGS) tests/e2e/test_arm64.py

systemd-records: $(VENV)/.installed-dev ## record what the systemd of Debian 12 and 13 prints, for the tests of doctor (needs root)
	@$(BIN)/python -m tests.systemd_records

soak: $(VENV)/.installed-dev ## agents and their service killed SOAK_CYCLES=15000 times; goes on in soak-output/ (an hour or so)
	@$(BIN)/python -m tests.fault.soak --cycles $${SOAK_CYCLES:-15000} --seed $${SOAK_SEED:-1} --out $(SOAK_OUT)

steady: $(VENV)/.installed-dev ## does a process grow? Service, gateway, 20 agents and a fleet for STEADY_HOURS=2 (needs mosquitto)
	@$(BIN)/python -m tests.fault.steady --hours $${STEADY_HOURS:-2} --out $(STEADY_OUT)

powercuts: $(VENV)/.installed-dev ## a power cut at every sync of a recorded life, an agent started on every image (a quarter of an hour)
	@POWER_CUT_REVIVED=1 POWER_CUT_SECTORS=4 $(BIN)/python -m pytest --numprocesses 0 tests/fault/test_power_cuts.py

update-cuts: $(VENV)/.installed-dev ## an update killed UPDATE_CUTS=240 times at steps that write, UPDATE_POWER_CUTS=60 with unsynced data lost (an hour)
	@UPDATE_CUTS=$${UPDATE_CUTS:-240} UPDATE_POWER_CUTS=$${UPDATE_POWER_CUTS:-60} $(BIN)/python -m pytest --numprocesses 2 --timeout 3000 tests/fault/test_update_cuts.py \
		tests/fault/test_bad_releases.py

labelsproof: $(VENV)/.installed-dev ## LABELS_PROOF=100000 codes proven, two ledgers of 50,000 serials, a batch of 10,000 killed (an hour)
	@$(BIN)/python benchmarks/labels.py --proof $${LABELS_PROOF:-100000}
	@LEDGER_SERIALS=50000 LABELS_KILLED=10000 $(BIN)/python -m pytest --numprocesses 0 --timeout 3000 \
		-k "killed or never_get_the_same" tests/unit/simulator/labels/test_ledger.py tests/unit/simulator/labels/test_resume.py

check: $(VENV)/.installed-dev ## lint, format, types, import walls, lock files, links
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --quiet --no-header --numprocesses 0 tests/unit/test_project.py tests/unit/test_docs.py

format: $(VENV)/.installed-dev ## put the code in its canonical format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

pictures: $(VENV)/.installed-dev ## draw the pictures of labels and of the fleet in docs/images (needs pdftoppm and chromium)
	@$(BIN)/python tools/draw_label_pictures.py
	@$(BIN)/python tools/write_pictures.py
	@$(BIN)/python -m tools.write_fleet_pictures

bench: $(VENV)/.installed-dev ## all benchmarks, each beside its peers
	@set -e; for benchmark in benchmarks/[a-z]*.py; do echo "== $$benchmark"; $(BIN)/python "$$benchmark"; done

# dev.txt is the widest; the others take its versions, so that a machine never holds two truths.
lock: $(VENV)/.installed-dev ## write requirements/ from pyproject.toml (needs the package index)
	@$(LOCK) pyproject.toml --extra dev --output-file requirements/dev.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --output-file requirements/base.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra simulator --output-file requirements/simulator.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra gateway --output-file requirements/gateway.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra signing --output-file requirements/signing.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra metrics --output-file requirements/metrics.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra device --output-file requirements/device.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra opencv --output-file requirements/opencv.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra parquet --output-file requirements/parquet.txt
	@$(LOCK) pyproject.toml --constraints requirements/dev.txt --extra cluster --output-file requirements/cluster.txt
	@$(LOCK) --constraints requirements/dev.txt --group cluster-test --output-file tests/cluster/requirements.txt
	@$(LOCK) --constraints requirements/dev.txt --group build --output-file requirements/build.txt

deb: $(VENV)/.installed-dev ## the packages for Debian and Raspberry Pi OS in dist/deb/ (needs dpkg-deb and the package index)
	@$(BIN)/python tools/build_deb.py

release: $(VENV)/.installed-dev ## signed releases for update_agent in dist/release/; KEY=release.key is of device-agent keys make
	@$(BIN)/python tools/build_release.py --key $(KEY) $(RELEASE_FLAGS)

clean: ## remove what these targets made
	rm -rf $(VENV) $(VENV_CLUSTER) $(DEMO_OUT) $(SOAK_OUT) $(STEADY_OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
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

$(VENV_CLUSTER)/.installed: $(VENV)/.made requirements/cluster.txt requirements/build.txt tests/cluster/requirements.txt pyproject.toml
	@echo "installing what the tests of the cluster need (once; a minute or so)"
	@$(BIN)/python -m venv --clear $(VENV_CLUSTER)
	@$(MAKE) --no-print-directory BIN=$(VENV_CLUSTER)/bin $(VENV_CLUSTER)/.filled
	@touch $@

$(VENV_CLUSTER)/.filled:
	@$(INSTALL_PINNED) -r requirements/cluster.txt -r requirements/build.txt -r tests/cluster/requirements.txt
	@$(INSTALL_PROJECT)
