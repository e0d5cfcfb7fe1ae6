# The door to the project: every target sets up what it needs, so each works on a fresh clone.

VENV    ?= .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
BENCH   := $(VENV)/.ready-bench
WORKERS ?= auto
INSTALL := --disable-pip-version-check install --quiet --constraint
PIP     := $(BIN)/pip $(INSTALL) constraints.txt
PYTEST  := $(BIN)/pytest -n $(WORKERS) --dist worksteal --ignore tests/versions

# Versions of PySpark other than the pinned one. Each has its own environment, in which the tests of tests/versions run.
# The lowest version that pyproject.toml declares must be here.
SPARKS  := 4.1

.DEFAULT_GOAL := help
.PHONY: help setup java chromium demo quick test test-full test-spark seeded-bugs check format bench bench-spark compliance engines clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter of a new environment (3.11 to 3.13),"
	@echo "  WORKERS=n the test processes, ARGS=... goes to pytest or to the benchmarks."

setup: $(READY) ## create .venv with the pinned versions

$(BIN)/python:
	python=$$(sh scripts/system.sh python) && "$$python" -m venv $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $@

$(BENCH): $(READY)
	$(PIP) --editable '.[test,bench]'
	@touch $@

java: $(READY) ## see to Java 17 (not needed by the PyArrow engine)
	@sh scripts/system.sh java $(BIN)/python || { $(PIP) --editable '.[java]' && sh scripts/system.sh java $(BIN)/python; } \
		|| echo "No Java 17: the PyArrow engine does not need it. Install a JDK 17 or set JAVA_HOME."

chromium: ## see to Chromium, in which the tests look at the HTML report
	@sh scripts/system.sh chromium || echo "No Chromium: tests of the HTML report in a browser are skipped. Install one or set CHROMIUM."

demo: java ## the tour: a month of orders through pipelines on Spark, readers that agree, reports to open
	$(BIN)/python examples/tour.py "$$(mktemp -d)" 3000000

quick: $(READY) ## run the tests that need neither Spark nor S3 nor a browser, without the sweeps
	SWEEP=quick $(PYTEST) -m 'not spark and not s3 and not browser and not sweep' $(ARGS)

test: check java chromium test-spark ## set up, run all checks and all tests
	SWEEP=ci $(PYTEST) $(ARGS)

test-full: check java chromium test-spark ## the same with every sweep in full (hours)
	SWEEP=full $(PYTEST) $(ARGS)

test-spark: $(SPARKS:%=test-spark-%) ## run a few tests with the lowest PySpark that is declared

$(SPARKS:%=test-spark-%): test-spark-%: $(VENV)-spark-%/.ready java
	$(VENV)-spark-$*/bin/pytest tests/versions

$(SPARKS:%=$(VENV)-spark-%/.ready): $(VENV)-spark-%/.ready: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing PySpark $* into $(@D). The package has 450 MB and is downloaded and built once."
	$(BIN)/python -m venv $(@D)
	sed 's/^pyspark==.*/pyspark==$*/' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/pip $(INSTALL) $(@D)/constraints.txt --editable '.[smoke]'
	@touch $@

seeded-bugs: java ## break the source in one place at a time and see that a test fails; ARGS=words chooses bugs
	$(BIN)/python tests/faults/seeded_bugs.py $(ARGS)

check: $(READY) ## ruff, ruff format, mypy --strict, import contracts, the pages of docs/
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY) ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(BENCH) ## run the benchmarks against the peers
	$(BIN)/python -m benchmarks $(ARGS)

bench-spark: $(BENCH) java ## run the benchmarks of the Spark engine against plain PySpark
	$(BIN)/python -m benchmarks.spark $(ARGS)

compliance: $(READY) ## write docs/compliance.md from the tests' marks
	$(BIN)/python tests/spec/compliance.py

engines: java ## run the conformance tests and write the table of docs/engines.md
	$(BIN)/python tests/conformance/parity.py -q -n $(WORKERS) --dist worksteal

clean: ## remove caches and build output
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find src tests examples scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf $(VENV) $(VENV)-spark-*
