# Every target builds the environment it needs; `make` alone lists them.
PYTHON  ?= python3
WORKERS ?= 2
VENV    := .venv
OTHERS  := 3.12 3.13
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
PIP     := $(BIN)/python -m pip install --disable-pip-version-check
CHECKED := src lab/src conftest.py tests lab/tests tools benchmarks
CHAIN   ?=
OUT     ?= out
PROFILE ?= paper
RESULTS ?= results
HASHES  ?= hashes.txt
export CHAIN OUT RESULTS  # a path may hold blanks and quotes: only the shell's own quoting keeps them

# One thread per worker: the workers are the parallelism, and results do not depend on the machine.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1
PYTEST     := $(ONE_THREAD) $(BIN)/pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: pythons help surface reproduce publish smoke test lint unit bench verify verify-data docs wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

# The stamp is written last, so an interrupted installation starts again.
$(READY): pyproject.toml lab/pyproject.toml constraints.txt hashes.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Arbiter needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@echo "==> environment: $(VENV), versions from constraints.txt"
	$(PYTHON) -m venv $(VENV)
	@test -n "$(HASHES)" && $(BIN)/python tools/lock_hashes.py --fits \
	  || { echo "==> no hashes: HASHES is empty, or hashes.txt is for another Python or system"; exit 0; }; \
	$(PIP) --require-hashes --no-deps -r "$(HASHES)" \
	  || { echo "a file is not that of $(HASHES): look why, or install unchecked with make HASHES=" >&2; exit 1; }
	$(PIP) -c constraints.txt hatchling editables
	$(PIP) -c constraints.txt --no-build-isolation -e '.[report,dev,bench]' -e lab
	@echo "==> machine code, compiled once for this machine"
	$(BIN)/arbiter warm || test $$? -eq 1
	@touch $@

surface: $(READY) ## fit a chain, the shipped one or CHAIN=path: surface, certificate, report in out/
	$(BIN)/arbiter fit $${CHAIN:+"$$CHAIN"} --out "$$OUT"

reproduce: $(READY) ## every number, table and figure in results/, or PROFILE=smoke|paper|full
	$(ONE_THREAD) $(BIN)/arbiter reproduce --profile $(PROFILE) --out "$$RESULTS"

publish: $(READY) ## keep a run with the source: docs/results/ and the numbers of its two pages
	$(BIN)/python tools/publish_results.py "$$RESULTS"

smoke: $(READY) ## the smallest reproduction from nothing, and the check of what it wrote
	@echo "==> reproduction, smoke"
	rm -rf out/smoke
	$(MAKE) --no-print-directory reproduce PROFILE=smoke RESULTS=out/smoke
	$(BIN)/arbiter reproduce --check out/smoke

test: lint unit docs wheel smoke ## everything that must hold before a commit
	@echo "==> all checks passed"

lint: $(READY) ## ruff, mypy and the shape of the house
	@echo "==> ruff"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "==> mypy"
	$(BIN)/mypy $(CHECKED)
	@echo "==> house"
	$(BIN)/python tools/house.py

unit: $(READY) ## the tests alone
	@echo "==> pytest"
	$(PYTEST)

docs: $(READY) ## build the documentation into site/; a warning is an error
	@echo "==> documentation"
	$(BIN)/python tools/measured_tables.py
	$(BIN)/python tools/api_pages.py
	PYTHONPATH=tools $(BIN)/zensical build --clean --strict
	$(BIN)/python tools/check_site.py

wheel: $(READY) ## build both wheels and try them in an empty environment
	@echo "==> wheel"
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir dist lab
	$(BIN)/python tools/check_wheel.py dist constraints.txt

# Not part of `test`: on other Pythons the registry may have no CPU build of torch, and sends gigabytes.
pythons: ## the tests with every other supported Python that is at hand
	@for version in $(OTHERS); do \
	  command -v python$$version >/dev/null && python$$version -c '' 2>/dev/null || { echo "==> python$$version is not at hand"; continue; }; \
	  echo "==> pytest, python$$version"; \
	  test -f .venv-$$version/.ready || { python$$version -m venv .venv-$$version && .venv-$$version/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt hatchling editables && .venv-$$version/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt --no-build-isolation -e '.[report,dev,bench]' -e lab && touch .venv-$$version/.ready; } || exit 1; \
	  $(ONE_THREAD) .venv-$$version/bin/pytest -n $(WORKERS) || exit 1; \
	done

bench: $(READY) ## measure speed and accuracy
	$(BIN)/python -m benchmarks

verify: verify-data $(READY) ## the tests with every stated count at full size; needs ARBITER_DATA
	@echo "==> pytest, full counts"
	ARBITER_VERIFY=1 $(PYTEST)

verify-data:
	@test -n "$$ARBITER_DATA" || { echo "make verify: ARBITER_DATA is unset; set it to the folder with the market data files." >&2; exit 1; }
	@test -d "$$ARBITER_DATA" || { echo "make verify: ARBITER_DATA is '$$ARBITER_DATA', which is not a folder." >&2; exit 1; }

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) $(VENV)-* build dist docs/api out site .cache .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +
