# make demo   see it work      make test   lint, types and tests      make bench TEXTS=file   the speed ratios
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench clean

demo: $(VENV)/.demo
	@$(BIN)/python -m examples.demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev  # make bench TEXTS=paragraphs.jsonl
	$(BIN)/python -m bench $(TEXTS)

# torch first and by its exact version: a CPU build, where the index has one, instead of CUDA's gigabytes.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml models/pyproject.toml
	$(BIN)/pip install -q -c constraints.txt -e . -e ./models
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml models/pyproject.toml
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]' -e ./models
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
