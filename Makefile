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
	$(BIN)/taskscape fit glyphs --split train --n-tasks 8000 --max-passes 3 --out out/model
	$(BIN)/taskscape embed out/model glyphs --split train --n-tasks 20000 --n-way 5 --seed 1 --out out/train.parquet
	$(BIN)/taskscape embed out/model glyphs --split val --n-tasks 2000 --n-way 5 --seed 2 --out out/val.parquet
	$(BIN)/taskscape embed out/model glyphs --split test --n-tasks 2000 --n-way 5 --seed 3 --out out/test.parquet
	$(BIN)/taskscape compare out/test.parquet out/train.parquet --reference out/val.parquet --out out/distances.csv
	$(BIN)/taskscape nearest --catalogue out/train.parquet --query out/test.parquet --task 0 -k 3
	$(BIN)/taskscape select out/test.parquet out/train.parquet -n 500 --out out/selected.json

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
