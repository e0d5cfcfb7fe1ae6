# Build, test and benchmark fsspeckit. Every target installs what it needs, so each works on a fresh clone.

VENV    ?= .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
BENCH   := $(VENV)/.ready-bench
WORKERS ?= auto
INSTALL := sh scripts/install.sh
PIP     := $(INSTALL) $(VENV) constraints.txt
PYTEST  := $(BIN)/pytest -n $(WORKERS) --dist worksteal --durations 10 --ignore tests/versions --ignore tests/integrations --ignore tests/readers

# PySpark versions in addition to the pinned one. Each has an environment in which tests/versions and the conformance
# tests of Spark run. The environment `lowest` has the lowest version of every package that pyproject.toml declares.
# `make test-more` runs a part of the tests with the lowest versions, `make test-versions` all of them in all environments.
# Both let writers race on S3 with the lowest s3fs, of which older versions ignore a condition on which commits depend.
SPARKS  := 3.5 4.0 4.1 4.2
LOWEST  := $(VENV)-lowest
SCHEDULERS := $(VENV)-integrations
READERS := $(VENV)-readers
# The `spark` extra excludes pandas 3, which pip installs without it. This environment has it.
PANDAS  := $(VENV)-pandas
# The demo needs a part of the packages only; it uses the environment of the tests where that exists.
DEMO    := $(if $(wildcard $(READY)),$(VENV),$(VENV)-demo)
OLD      = SWEEP=quick $(1)/bin/pytest -n 2 --dist worksteal -m '$(2) and not s3 and not sweep' tests/versions
PART    := $(addprefix tests/conformance/test_,row_changes.py optimize.py)
RACE     = $(1)/bin/pytest -m 'not sweep' tests/faults/test_exclusive_create.py

# Find Java 17 for the Spark of an environment, or install it.
JAVA     = @sh scripts/system.sh java $(1)/bin/python \
		|| { $(INSTALL) $(1) constraints.txt --editable '.[java]' && sh scripts/system.sh java $(1)/bin/python; } \
		|| echo "No Java 17 found. The Spark engine needs it: install a JDK 17, or set JAVA_HOME."

.DEFAULT_GOAL := help
.PHONY: help setup java chromium tmux servers stores demo quick test test-more test-full test-versions test-lowest test-integrations test-pandas test-readers seeded-bugs check format bench bench-spark compliance conflicts engines clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12  interpreter of a new environment (3.11 to 3.13)"
	@echo "  WORKERS=n          number of test processes"
	@echo "  ARGS=...           arguments for pytest or the benchmarks"
	@echo "  UV=                install with pip even if uv is installed"

setup: $(READY) ## create .venv with the pinned versions

$(BIN)/python:
	python=$$(sh scripts/system.sh python) && "$$python" -m venv $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $@

$(BENCH): $(READY)
	$(PIP) --editable '.[test,bench]'
	@touch $@

java: $(READY) ## install Java 17 if it is missing (only Spark needs it)
	$(call JAVA,$(VENV))

chromium: ## install Chromium if it is missing (tests open the HTML report in it)
	@sh scripts/system.sh chromium || echo "No Chromium found. Tests of the HTML report in a browser are skipped: install it, or set CHROMIUM."

tmux: ## install tmux if it is missing (tests of bars and prompts run in it)
	@sh scripts/system.sh tmux || echo "No tmux found. Tests of bars and prompts in a terminal are skipped: install it."

servers: $(READY) ## install servers of object stores for their tests (versitygw needs Go, Azurite npm)
	sh scripts/servers.sh $(VENV)/servers

stores: servers ## run the tests on servers of object stores and write the table of docs/guarantees.md
	STORES_TABLE=1 $(BIN)/pytest tests/stores $(ARGS)

demo: $(DEMO)/.ready ## run examples/tour.py: pipelines on Spark with a join, a change feed, a quarantine and history; four readers; HTML reports
	$(call JAVA,$(DEMO))
	$(DEMO)/bin/python examples/tour.py "$$(mktemp -d)" 3000000

$(VENV)-demo/.ready: pyproject.toml constraints.txt
	python=$$(sh scripts/system.sh python) && "$$python" -m venv $(@D)
	$(INSTALL) $(@D) constraints.txt --editable '.[demo]'
	@touch $@

quick: $(READY) ## run the tests without Spark, S3, a browser, processes and sweeps
	SWEEP=quick $(PYTEST) -m 'not spark and not s3 and not browser and not process and not sweep' $(ARGS)

test: check java chromium ## run the checks and the tests that every change needs (10 minutes on two cores)
	SWEEP=ci $(PYTEST) -m 'not more' $(ARGS)

test-more: java chromium tmux servers test-lowest-part test-pandas ## run all other tests, and the sweeps with more cases (16 minutes on two cores)
	SWEEP=more $(PYTEST) -m 'more or sweep' $(ARGS)
	S3_SERVER=versitygw SWEEP=quick $(PYTEST) -m 'more and s3 and not spark' -k 'not duckdb and not exchange' \
		tests/conformance/test_storage.py tests/faults/test_s3.py

test-full: check java chromium tmux test-versions test-integrations test-readers ## run all checks and all tests, with complete crash and random tests (hours)
	SWEEP=full $(PYTEST) $(ARGS)

test-versions: test-lowest $(SPARKS:%=test-spark-%) ## run the conformance tests with older versions of PySpark and others

test-integrations: $(SCHEDULERS)/.ready java ## run the tests of the integrations in Airflow, Dagster and dbt-duckdb
	$(SCHEDULERS)/bin/pytest -o filterwarnings=default -p no:cacheprovider tests/integrations $(ARGS)

$(SCHEDULERS)/.ready: pyproject.toml constraints-integrations.txt | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(INSTALL) $(@D) constraints-integrations.txt --editable '.[integrations]'
	@touch $@

test-pandas: $(PANDAS)/.ready ## run the tests that pass pandas frames, and the example of Dagster, with pandas 3
	SWEEP=quick $(PANDAS)/bin/pytest -n 2 -o filterwarnings=default -p no:cacheprovider -m 'not spark' tests/integrations \
		$(addprefix tests/conformance/test_,sources.py ordered_categories.py) $(ARGS)

$(PANDAS)/.ready: pyproject.toml constraints-integrations.txt | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	sed -e 's/^pandas==.*/pandas==3.1.1/' constraints-integrations.txt > $(@D)/constraints.txt
	$(INSTALL) $(@D) $(@D)/constraints.txt --editable '.[pandas]'
	@touch $@

test-readers: $(READERS)/.ready java ## let Spark and DuckDB read Delta and Iceberg exports, in the versions that have readers
	$(READERS)/bin/pytest -o filterwarnings=default -p no:cacheprovider tests/readers $(ARGS)

$(READERS)/.ready: pyproject.toml constraints-readers.txt | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(INSTALL) $(@D) constraints-readers.txt --editable '.[readers]'
	@touch $@

test-lowest: $(LOWEST)/.ready java ## run the conformance tests with the lowest versions that are declared
	$(call OLD,$(LOWEST),not process) tests/conformance $(ARGS)
	$(call RACE,$(LOWEST))

test-lowest-part: java
	@if PYTHON=python3.11 sh scripts/system.sh python > /dev/null 2>&1; then $(MAKE) $(LOWEST)/.part; \
		else echo "No Python 3.11 found. PySpark 3.5 needs it: the tests with the lowest versions are skipped."; fi

.PHONY: $(LOWEST)/.part
$(LOWEST)/.part: $(LOWEST)/.ready
	$(call OLD,$(LOWEST),not process) $(PART)
	$(call RACE,$(LOWEST))

$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt
	python=$$(PYTHON=python3.11 sh scripts/system.sh python) && "$$python" -m venv $(@D)
	$(INSTALL) $(@D) constraints-lowest.txt --editable '.[versions]'
	@touch $@

$(SPARKS:%=test-spark-%): test-spark-%: $(VENV)-spark-%/.ready java
	$(call OLD,$(VENV)-spark-$*,spark) tests/conformance $(ARGS)

$(SPARKS:%=$(VENV)-spark-%/.ready): $(VENV)-spark-%/.ready: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing PySpark $* into $(@D). The package has 450 MB and is downloaded and built once."
	$(BIN)/python -m venv $(@D)
	sed -e 's/^pyspark==.*/pyspark==$*/' -e '/^py4j==/d' constraints.txt > $(@D)/constraints.txt
	$(INSTALL) $(@D) $(@D)/constraints.txt --editable '.[versions]'
	@touch $@

seeded-bugs: java ## break the source in one place at a time and check that a test fails; ARGS=words, ARGS="--draw 40 --seed 1 --workers 2 commit"
	$(BIN)/python tests/bugs/run.py $(ARGS)

check: $(READY) ## run ruff, ruff format, mypy --strict, import contracts and the build of docs/
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY) ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(BENCH) ## run the benchmarks against pyarrow, polars, DuckDB and delta-rs
	$(BIN)/python -m benchmarks $(ARGS)

bench-spark: $(BENCH) java ## run the benchmarks of the Spark engine against plain PySpark
	$(BIN)/python -m benchmarks.spark $(ARGS)

compliance: $(READY) ## write docs/compliance.md from the marks of the tests
	$(BIN)/python tests/spec/compliance.py

conflicts: $(READY) ## try every pair of operations on local disk and S3 and write the table of docs/guarantees.md
	PYTHONPATH=tests $(BIN)/python tests/spec/conflicts.py

engines: java ## run the conformance tests and write the table of docs/engines.md
	$(BIN)/python tests/conformance/parity.py -q -n $(WORKERS) --dist worksteal

clean: ## remove caches and build output
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find src tests examples scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf $(VENV) $(VENV)-demo $(VENV)-spark-* $(LOWEST) $(SCHEDULERS) $(PANDAS) $(READERS)
