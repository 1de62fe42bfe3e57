# make demo, check, test, test-long: each sets up .venv by itself. make setup PYTHON=python3.12 picks an interpreter.
PYTHON ?= python3
# The recipes' scripts take an interpreter of this name from the environment, and it has to be that of VENV.
unexport PYTHON
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CORPUS ?= examples/quickstart/corpus
FAIRSEQ := fairseq==0.12.2

# Tests of behavior that need no training, no processes and no recipe: for every commit.
UNIT := analysis backends checkpoints criterions elastic evaluation fairseq_compat growth models modules optim serving tasks translation

.PHONY: demo check test test-long soak setup lint matrix bench bench-gpu sweep sweep-gpu pages clean

demo: $(READY)
	$(BIN)/python examples/quickstart/demo.py --corpus "$(CORPUS)"

check: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow" $(addprefix tests/,$(UNIT)) tests/test_*.py

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not long"

# What compiles for minutes, or waits for machines that are lost.
test-long: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m long

# Half an hour of kills, full disks, damaged and hostile files and requests: docs/reliability.md.
soak: $(READY)
	$(BIN)/python tests/soak/soak.py $(SOAK)
	$(BIN)/python benchmarks/tables.py docs/reliability.md

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/shellcheck -x .ci/run $$(find recipes -name '*.sh')

setup:
	@$(PYTHON) tools/check_setup.py $(VENV) $(if $(findstring command,$(origin PYTHON)),--same-python)
	@$(MAKE) --no-print-directory $(READY)

# fairseq comes without its own, stale pins; setup.py has the ones that work (README, "Installing").
$(READY): setup.py pyproject.toml fairseq_compat/versions.py fairseq_compat.pth
	@$(PYTHON) tools/check_setup.py $(VENV)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[test]'
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps $(FAIRSEQ)
	$(BIN)/fairseq-depthwise doctor
	touch $(READY)

# Narrow models and a choice of rows, under 10 minutes on two cores; one thread, since layers of width 128 have too
# little for two.
bench: $(READY)
	$(BIN)/python benchmarks/speed.py --threads 1 --rounds 3 --decode-batches 1 16
	$(BIN)/python benchmarks/tables.py docs/benchmarks.md

# The tables and figures of all pages, from docs/records.
pages: $(READY)
	$(BIN)/python benchmarks/tables.py README.md docs/*.md
	$(BIN)/python benchmarks/figures.py

# The registered comparison of docs/results.md; for a GPU at base width. SWEEP="--jobs 2": trainings at a time.
sweep: $(READY)
	$(BIN)/python recipes/sweep.py recipes/plans/multi30k.toml recipes/plans/tatoeba_de_en.toml $(SWEEP)

sweep-gpu: $(READY)
	$(BIN)/python recipes/sweep.py recipes/plans/mixed_de_en.toml --jobs 3 --gpus 1 $(SWEEP)

bench-gpu: $(READY)
	$(BIN)/python benchmarks/speed.py --device cuda --size base --precisions bf16
	$(BIN)/python benchmarks/tables.py docs/benchmarks.md
	$(BIN)/python -m pytest -m gpu

# Tests on all supported Pythons, with the lowest and the newest versions: docs/compatibility.md. MATRIX="--python 3.12": fewer.
matrix: $(READY)
	$(BIN)/nox $(MATRIX)

clean:
	rm -rf $(VENV) .nox runs build *.egg-info .mypy_cache .ruff_cache .pytest_cache
