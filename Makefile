# Two commands matter: `make run` and `make test`. Each sets everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev

.PHONY: run reproduce test check lint types imports docs tables site gallery recording fast-tests all-tests browser packages wheel oldest torch clean
.DELETE_ON_ERROR:

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"taskscape needs Python 3.11 or newer, this is {v.major}.{v.minor}; try: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(DEV): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,docs,examples]'
	@touch $@

# Every fourth of the nine groups of the embedded pool that are for testing, as targets.
TARGETS := --target Arabic --target Lao --target Hexagrams

run: $(STAMP)
	$(BIN)/taskscape run --data glyphs $(TARGETS) --out out --resume

# The paper's figures, on the real data under TASKSCAPE_DATA; ARGS are further options, such as
# ARGS="--figures fig3 --scale 0.02 --minutes 30".
reproduce: $(STAMP)
	$(BIN)/python -m experiments.paper --out reproduced/results.jsonl $(ARGS)

test: lint types imports site all-tests

check: lint types imports fast-tests

docs: tables site

# The tables of the docs that list what a registry holds.
tables: $(DEV)
	$(BIN)/python docs/tables.py

# The documentation as a site, build/site/index.html. A broken link is an error.
site: $(DEV)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

# The notebooks of the gallery, run again with what they show; docs/gallery/from-pytorch.ipynb needs
# PyTorch, and stays as it is without.
gallery: $(DEV)
	$(BIN)/python docs/notebooks.py docs/gallery/*.ipynb

# What README shows of a study: its terminal, and its report in Chromium.
recording: $(DEV) browser
	$(BIN)/python docs/recording.py docs/images

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

imports: $(DEV)
	$(BIN)/lint-imports

fast-tests: $(DEV)
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m "not slow"

all-tests: $(DEV) browser
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# The report is tested in a real browser. Where there is none and none can be had, those tests skip.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	command -v apt-get >/dev/null || exit 0; \
	if [ "$$(id -u)" = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo="sudo -n"; else exit 0; fi; \
	echo "installing chromium for the tests of the report"; \
	{ $$sudo apt-get update -qq; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
	  >/dev/null 2>&1 </dev/null || true

# The source distribution, and the wheel made from it.
packages: $(DEV)
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -d dist
	rm -rf build/source && mkdir -p build/source && tar -xzf dist/taskscape-*.tar.gz -C build/source --strip-components 1
	cd build/source && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist

# The wheel in an environment where nothing else is, and what README says there; pipx, too.
wheel: packages
	$(BIN)/python tests/wheel_alone.py dist build/wheel

# The fast tests with the lowest versions that pyproject.toml allows; what these warn of is not ours.
oldest:
	rm -rf build/oldest && $(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/oldest/bin/uv pip install --quiet --python build/oldest/bin/python --resolution lowest-direct -e '.[dev]'
	build/oldest/bin/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m "not slow" -o filterwarnings=default --disable-warnings

# What docs/from-pytorch.md and its notebook say, with PyTorch for CPUs in an environment of its own.
TORCH ?= torch torchvision easyfsl
TORCH_INDEX ?= --extra-index-url https://download.pytorch.org/whl/cpu
torch:
	test -x build/torch/bin/python || $(PYTHON) -m venv build/torch
	build/torch/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_INDEX) $(TORCH) -e '.[dev,docs]'
	build/torch/bin/python -m pytest -q -k pytorch tests/pytorch tests/test_gallery.py

clean:
	rm -rf $(VENV) out reproduced build dist
