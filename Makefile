# Every target makes .venv with the plain interpreter on first use and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := src/tailproof/native/c
export TAILPROOF_DATA ?= $(wildcard ../shared/data)

# Where there is no C compiler, the one of the ziglang wheel is taken.
ifeq ($(shell command -v cc || command -v gcc || command -v clang),)
COMPILER := .venv/zig-cc
export CC := $(CURDIR)/$(COMPILER)
endif

.PHONY: demo test check bench docs native sanitize wheel clean

demo: .venv/with-cli
	$(BIN)/tailproof demo

test: .venv/with-test
	@.ci/chromium
	$(BIN)/python -m pytest -n 2

check: .venv/with-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/with-docs
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build

bench: .venv/with-test
	$(BIN)/python benchmarks/run.py

# The C library of this checkout, after a change to its sources.
native: .venv/with-test
	$(BIN)/cmake -G Ninja -S $(NATIVE) -B build/native -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DTAILPROOF_IN_PLACE=ON
	$(BIN)/cmake --build build/native

# Kernels, means, merges and contracts with every access to memory and every undefined operation checked.
sanitize: .venv/with-test
	BIN=$(CURDIR)/$(BIN) .ci/sanitize

wheel: .venv/with-test
	$(BIN)/python -m pip wheel --quiet --no-deps -w dist .
	.ci/smoke dist

clean:
	rm -rf .venv build

.venv/zig-cc:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ziglang
	printf '#!/bin/sh\nexec "%s/zig" cc "$$@"\n' "$$($(BIN)/python -c 'import ziglang; print(*ziglang.__path__)')" > $@
	chmod +x $@

.venv/with-%: pyproject.toml constraints.txt $(COMPILER)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@
