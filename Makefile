# Every target makes .venv with the plain interpreter on first use and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
export TAILPROOF_DATA ?= $(wildcard ../shared/data)

.PHONY: demo test test-thorough check bench docs clean

demo: .venv/with-cli
	$(BIN)/tailproof demo

test: .venv/with-test
	@.ci/chromium
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Five times the examples of every property: for a nightly run.
test-thorough: .venv/with-test
	@.ci/chromium
	$(BIN)/python -m pytest -n 2 --dist loadgroup --hypothesis-profile=thorough

check: .venv/with-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/with-docs
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build

bench: .venv/with-test
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv

.venv/with-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@
