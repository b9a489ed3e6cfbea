# The two commands a stranger needs are `make demo` and `make test`; each makes the environment first.
.PHONY: setup fix check test slow demo bench docs
PYTHON ?= python3.11
BIN := .venv/bin

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,demo]'
	touch $@

fix: setup  ## mend what can be mended by a program
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(MAKE) docs

check: setup  ## style, types, layers, generated documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

test: setup  ## all but the slow tests, in two processes
	$(BIN)/pytest -n 2 --dist loadfile

slow: setup  ## the slow tests: every real and awkward video, kills, full networks
	$(BIN)/pytest -m slow

demo: setup  ## draw the toy data set, extract it, show the feature file
	$(BIN)/python -m workflows toy

bench: setup  ## every benchmark in small settings: tables, and runs/bench.json
	$(BIN)/python -m benchmarks.run

docs: setup  ## write the generated documents anew
	$(BIN)/python docs/generate.py
