# Each target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: compare test test-all newest lint format docs matrix clean

compare: $(READY)  ## a Llama attention layer, compiled, run on ONNX Runtime and compared with eager, value by value
	$(BIN)/python scripts/compare_llama.py --part attention --backward 1

test: $(READY)  ## what CI runs
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: $(READY)  ## the slow tests too
	$(BIN)/python -m pytest -q -n 2

newest:  ## what CI runs, with the newest release of everything, in .venv-newest: several GB of torch's CUDA libraries
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --editable '.[dev]'
	.venv-newest/bin/python -m pytest -q -n 2 -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the site, in build/docs: open build/docs/index.html
	$(BIN)/python -m sphinx -q -a -W --keep-going -c docs . build/docs

matrix: $(READY)  ## every part, mode, precision and source at the default sizes; writes docs/llama-matrix.md
	$(BIN)/python benchmarks/llama_matrix.py --write docs/llama-matrix.md

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv .venv-newest build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
