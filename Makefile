# Every target makes .venv with the plain interpreter on first use and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := src/tailproof/native/c
export TAILPROOF_DATA ?= $(wildcard ../shared/data)
# A module compiles when it is first imported, and once: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode

# Where there is no C compiler, the one of the ziglang wheel is taken.
ifeq ($(shell command -v cc || command -v gcc || command -v clang),)
COMPILER := .venv/zig-cc
export CC := $(CURDIR)/$(COMPILER)
endif

# Beside each other: mypy keeps one core busy for a minute, and Chromium comes from afar.
ifeq ($(sort $(MAKECMDGOALS)),check test)
MAKEFLAGS += -j3
endif

.PHONY: demo test test-thorough test-oldest soak check bench docs native sanitize wheel clean chromium

demo: .venv/with-cli
	$(BIN)/tailproof demo

# A process for each core and one more, since tests wait for servers; threads in them would only wait for each other.
test test-thorough test-oldest: export OMP_NUM_THREADS := 1
test test-thorough test-oldest: export OPENBLAS_NUM_THREADS := 1

test: .venv/with-test .venv/collected chromium
	$(BIN)/python -m pytest -n 3

# Twelve times the examples of every property, and 10,000 changed model files: for a nightly run.
test-thorough: .venv/with-test chromium
	$(BIN)/python -m pytest -n 3 --hypothesis-profile=thorough
	$(BIN)/python -W ignore tests/helpers/model_fuzz.py 10000

# Fits, kills, full disks, bad files, empty partitions and users beside each other: nothing lost, left or silent.
MINUTES ?= 10
SEED ?= 0
soak: .venv/with-test
	PYTHONPATH=tests/helpers $(BIN)/python -W ignore tests/soak/run.py --minutes $(MINUTES) --seed $(SEED)

# The oldest versions that are promised; PyTorch and Spark are left out.
OLDEST := .venv-oldest/bin
test-oldest: .venv-oldest/ready
	$(OLDEST)/python -m pytest -n 2 --ignore=tests/model_files/test_torch_modules.py \
		tests/core tests/data tests/estimators tests/tables tests/reports tests/model_files \
		tests/model_selection tests/cli tests/test_diagnose.py tests/test_plots.py

check: .venv/with-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/with-docs
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build

# `make bench` runs every suite, `make bench core speed` two of them.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
SUITES ?= $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(SUITES)
$(eval $(SUITES):;@:)
endif
bench: .venv/with-test
	$(BIN)/python benchmarks/run.py $(SUITES)

# Wheel and sdist in dist/, and the wheel tried in a fresh environment outside the repository.
wheel: .venv/with-release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	.ci/try-wheel dist/*.whl

# The C library of this checkout, after a change to its sources.
native: .venv/with-test
	$(BIN)/cmake -G Ninja -S $(NATIVE) -B build/native -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DTAILPROOF_IN_PLACE=ON
	$(BIN)/cmake --build build/native

# Kernels, means, merges and contracts with every access to memory and every undefined operation checked.
sanitize: .venv/with-test
	.ci/sanitize

chromium:
	@.ci/chromium

clean:
	rm -rf .venv .venv-oldest build dist

.venv/zig-cc:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ziglang
	printf '#!/bin/sh\nexec "%s/zig" cc "$$@"\n' "$$($(BIN)/python -c 'import ziglang; print(*ziglang.__path__)')" > $@
	chmod +x $@

# Most modules of large packages are never imported: not to compile them saves a third of the time. One pip compiles
# the C library while the other unpacks packages.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
.venv/with-%: export DIST_EXTRA_CONFIG := $(CURDIR)/.ci/uncompressed.cfg
.venv/with-%: pyproject.toml constraints.txt $(COMPILER)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python .ci/requirements.py $* > .venv/requirements-$*.txt
	$(INSTALL) --no-deps -e . & library=$$!; \
		$(INSTALL) -r .venv/requirements-$*.txt; packages=$$?; \
		wait $$library && exit $$packages
	touch $@

# Bytecode of all that tests import: at first three processes would compile all of it at the same time.
.venv/collected: .venv/with-test
	-@$(BIN)/python -m pytest --collect-only -qq > /dev/null
	@touch $@

.venv-oldest/ready: pyproject.toml constraints-oldest.txt
	test -x $(OLDEST)/python || $(PYTHON) -m venv .venv-oldest
	$(OLDEST)/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[test-oldest]'
	touch $@
