# Every target sets up what it needs: an environment in $(VENV), made again when the dependencies change.
# Prerequisites: Python 3.11+ with its venv module (or uv), and make.
#   make demo            a live Postgres with slow queries and the console; no key needed
#   make demo ARGS=--once    the same, printed once
#   make test            all tests            (make test ARGS="-k slack")
#   make fuzz            every property with 20 times its examples, new ones each time   (make fuzz FUZZ=100)
#   make check           format, lint, types, import rules, declared dependencies, sizes, words
#   make bench           the benchmarks
#   make docs            write the generated parts of docs/
#   make features        try every platform, and write the table of what works where
#   make constraints     write constraints.txt anew
#   make clean           remove what was built (not your database)

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
FUZZ ?= 20
BIN := $(VENV)/bin
STAMP := $(VENV)/.hermod-installed
SOURCES := reading agent_core adapters bot tests benchmarks scripts

.PHONY: demo test fuzz check bench docs features constraints clean
.DEFAULT_GOAL := demo

demo: $(STAMP)
	$(BIN)/hermod demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

fuzz: $(STAMP)
	FUZZ=$(FUZZ) $(BIN)/python -m pytest --hypothesis-profile=search -m hypothesis --timeout=3600 $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python -m scripts.check_sizes
	$(BIN)/python -m scripts.check_words

bench: $(STAMP)
	$(if $(filter --quick --no-peers,$(ARGS)),,PYTHON="$(PYTHON)" benchmarks/setup_peers.sh)
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP)
	$(BIN)/python -m scripts.write_docs
	$(BIN)/python -m scripts.write_bug_table
	$(BIN)/python -m scripts.write_chat_rows
	$(BIN)/python -m scripts.write_database_rows
	$(BIN)/python -m scripts.write_manifest

features: $(STAMP)
	$(BIN)/python -m scripts.write_features

constraints:
	PYTHON="$(PYTHON)" scripts/make_constraints.sh

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh
	@touch $@

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache $(VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
