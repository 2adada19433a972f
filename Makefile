# Two commands matter: `make run` and `make test`. Each sets everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check lint types imports fast-tests all-tests readme clean
.DELETE_ON_ERROR:

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"taskscape needs Python 3.11 or newer, this is {v.major}.{v.minor}; try: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

run: $(STAMP)
	$(BIN)/taskscape data show glyphs --out out/glyphs.png
	$(BIN)/taskscape tasks glyphs --split train --n-tasks 1000 --n-way 5-10 --n-shot 16 --out out/tasks.parquet

test: lint types imports all-tests

check: lint types imports fast-tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

fast-tests: $(STAMP)
	$(BIN)/pytest -q -n 2 -m "not slow"

all-tests: $(STAMP)
	$(BIN)/pytest -q -n 2

clean:
	rm -rf $(VENV) out build dist
