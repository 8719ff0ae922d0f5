# Every target does its own set-up. A machine needs Python >= 3.11 with venv, and make.

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test test-rest test-all test-costs test-agents coverage wheel mutants check audit fuzz
.PHONY: bench lock clean

VENV := .venv
BIN := $(VENV)/bin
UV ?= uv

# Names are tried, not looked up: a version manager's shim can exist and still refuse to run, and
# Debian ships Python without ensurepip until python3-venv is installed.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	$$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo $$name && break; done)

# Tests start thousands of interpreters. A machine that forbids Python to keep what it compiled would make each
# of them compile this package again: a third more time for a run of two cases, 1.2 s of processor and not 0.9 s.
unexport PYTHONDONTWRITEBYTECODE

# Wheels only: building from source would fetch build tools that no lock pins.
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input install -qq
LOCKED := --require-hashes --only-binary :all:

# Tests wait for a quarter of their time, so there is one worker more than processors. Tests that share
# something of the machine stay in one of them.
WORKERS ?= $(shell expr `getconf _NPROCESSORS_ONLN` + 1)
PARALLEL := --numprocesses $(WORKERS) --dist loadgroup

# Counting takes a tenth of the time, so only COUNT_BRANCHES=1 asks for it.
TRIED := $(BIN)/$(if $(COUNT_BRANCHES),coverage run,python)

# One lock for every platform and every Python that we support; hashes, and no addresses.
COMPILE := $(UV) pip compile --no-config --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-header --no-annotate pyproject.toml

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.stamp-runtime ## make .venv with what a user needs

setup-dev: $(VENV)/.stamp-dev ## ... and with what a developer needs

demo: setup ## run the main job on the shipped bench, offline
	@$(BIN)/codegenie eval demo

test: setup-dev ## run every test in its usual way
	@$(TRIED) -m pytest $(PARALLEL)

test-rest: setup-dev ## run what repeats a test in another way, and `make test` leaves out
	@$(TRIED) -m pytest $(PARALLEL) -m all_ways

test-all: setup-dev ## run both and count the branches that they take
	@$(BIN)/coverage erase
	@$(MAKE) --no-print-directory COUNT_BRANCHES=1 test
	@$(MAKE) --no-print-directory COUNT_BRANCHES=1 test-rest
	@$(MAKE) --no-print-directory coverage

coverage: setup-dev ## add up what tests with COUNT_BRANCHES=1 took; fails under 90 % of the branches
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report
	@$(BIN)/python scripts/check_coverage.py

test-costs: setup-dev ## run what `make test` runs, and say which files take most of the processors
	@$(BIN)/python -m pytest $(PARALLEL) -p tests.support.costs

test-agents: setup-dev ## install real agents (2 GB, needs a network) and drive them (AGENTS="--without aider")
	@$(BIN)/python -m scripts.drive_agents $(AGENTS)

wheel: setup-dev ## build the wheel twice, write its SBOM, and try it on every Python there is
	@$(BIN)/python -m scripts.build_wheel
	@$(BIN)/python -m scripts.try_wheel

mutants: setup-dev ## take each defense away in a copy and see which tests go red
	@$(BIN)/python scripts/mutants.py
	@$(BIN)/python scripts/proof_notices.py

check: setup-dev ## every static check, in seconds: format, lint, types, layers, habits
	@$(BIN)/python -m scripts.run_checks

audit: setup-dev ## ask a public database for known holes in what is locked (needs a network)
	@$(BIN)/python -m scripts.audit_locks

fuzz: setup-dev ## give mutated inputs to every decoder, for a minute (FUZZ="--seconds 600 --seed 7")
	@$(BIN)/python -m scripts.fuzz $(FUZZ)

bench: setup ## measure the harness against its baselines
	@$(BIN)/python -m benchmarks

lock: ## renew both lock files (needs uv)
	@{ echo '# What a user needs. Made by `make lock` from pyproject.toml; not edited by hand.'; \
	echo '# hatchling and what it needs are here because `make setup` installs the package in place'; \
	echo '# without build isolation, so that nothing outside this file is ever fetched.'; \
	echo hatchling | $(COMPILE) -; } >$(VENV)-requirements.tmp
	@mv $(VENV)-requirements.tmp requirements.txt
	@{ echo '# What a developer needs: requirements.txt and the tools. Made by `make lock`.'; \
	$(COMPILE) --extra dev --constraint requirements.txt; } >$(VENV)-requirements.tmp
	@mv $(VENV)-requirements.tmp requirements-dev.txt

clean: ## remove what the other targets made; records of runs stay
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@rm -f .coverage .coverage.*
	@find src tests bench benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/.stamp-venv:
	@test -n "$(PYTHON)" || { echo 'make: no Python >= 3.11 with venv; on Debian: apt-get install python3-venv' >&2; exit 1; }
	@echo 'setting up $(VENV), once'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.stamp-runtime: $(VENV)/.stamp-venv requirements.txt pyproject.toml src/codegenie/__init__.py
	@$(PIP_INSTALL) $(LOCKED) -r requirements.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-runtime requirements-dev.txt
	@$(PIP_INSTALL) $(LOCKED) -r requirements-dev.txt
	@touch $@
