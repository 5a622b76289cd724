# The only commands to know: make demo, make test, make lint; make gpu-test where there is a GPU, make bench and
# make bench-detection for README's figures.
#
# Each makes .venv first; it is installed anew only when pyproject.toml or constraints.txt has changed.

PYTHON ?= python3
PIP_OPTIONS ?=
ARGS ?=

BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt $(PIP_OPTIONS)

.PHONY: help demo test gpu-test lint bench bench-detection dashboards clean
.NOTPARALLEL:

help:
	@echo 'make demo             train a small model, break it on purpose, watch Sentinel bring it back'
	@echo 'make test             run every test'
	@echo 'make gpu-test         run what needs an NVIDIA GPU; without one everything is skipped, with the reason'
	@echo 'make lint             check style, types and who imports whom'
	@echo 'make bench            measure what Sentinel costs and how fast it is, in eight minutes, on a machine left alone'
	@echo 'make bench-detection  measure what it finds; SENTINEL_CORPUS names a corpus of labelled runs, if there is one'
	@echo 'make dashboards       write the JSON of the Grafana dashboards anew'
	@echo 'make clean            remove .venv and the caches'
	@echo
	@echo 'PYTHON=python3.12       the interpreter that makes .venv (3.11 or newer)'
	@echo 'ARGS=--healthy          options of `sentinel demo`, of pytest in `make test`, of `make bench`: --quick, --json FILE'
	@echo "PIP_OPTIONS='...'       options of pip, to choose another build of PyTorch; run \`make clean\` before a change of build"

demo: .venv/demo.stamp
	@$(BIN)/sentinel demo $(ARGS)

test: .venv/dev.stamp
	@$(BIN)/pytest $(ARGS)

gpu-test: .venv/dev.stamp
	@$(BIN)/pytest tests/gpu -v -rs $(ARGS)

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: .venv/bench.stamp
	@$(BIN)/python -m tests.benchmarks.measure $(ARGS)

bench-detection: .venv/bench.stamp
	@$(BIN)/python -m tests.benchmarks.detection.trainer_faults
	@$(BIN)/python -m tests.benchmarks.detection.table --peers

dashboards: .venv/dev.stamp
	@$(BIN)/python -m dashboards.generate

clean:
	rm -rf .venv .*_cache .hypothesis build dist

.venv/%.stamp: .venv/made.stamp pyproject.toml constraints.txt
	@echo "Installing what \`make $(MAKECMDGOALS)\` needs into .venv; the first time this takes a minute or more ..."
	@$(INSTALL) -e '.[$*]'
	@touch .venv/demo.stamp $@ # the dev set holds the demo set

.venv/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'Sentinel needs Python 3.11 or newer, and "$(PYTHON)" is not: name another one, as in: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '"$(PYTHON)" cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt-get install python3-venv)' >&2; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv --clear .venv
	@touch $@
