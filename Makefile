# make demo: run the demo.  make test: lint, types and tests.  make docs: build the site.  make bench TEXTS=file: benchmarks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs bench clean

demo: $(VENV)/.demo
	@$(BIN)/python -m examples.demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

bench: $(VENV)/.dev  # make bench TEXTS=paragraphs.jsonl
	$(BIN)/python -m bench $(TEXTS)

# Install torch first, at its exact version: pip then prefers a CPU build, if the index has one, to the much larger CUDA build.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml models/pyproject.toml
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]' -e ./models
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build site *.egg-info .pytest_cache .mypy_cache .ruff_cache
