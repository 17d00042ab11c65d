# SPDX-License-Identifier: Apache-2.0
# Everything a user or CI runs is a target here; `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS ?= 2
PRESETS := tiny small fpga nvl8 nvl72

# Benches start Python hundreds of times: what it has compiled is kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

# The newest usable Python wins; PYTHON=... chooses another.
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,\
  $(if $(shell $(name) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(name))))

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

.PHONY: tools
tools:
	@test -n "$(PYTHON)" || { echo "missing: Python 3.11 or newer (Debian package: python3)"; exit 1; }
	@for pair in perl:perl g++:g++ make:make; do \
	  command -v $${pair%%:*} >/dev/null || { echo "missing: $${pair%%:*} (Debian package: $${pair##*:})"; exit 1; }; done
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "missing: Python's venv (Debian package: python3-venv)"; exit 1; }

.PHONY: setup
setup: $(READY)  ## make .venv with the locked tools from PyPI (the other targets do it by themselves)

$(READY): pyproject.toml requirements.lock
	@$(MAKE) --no-print-directory tools
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the tools of requirements.lock into $(VENV) ..."
	@$(PIP) --requirement requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m find_libpython | grep -q . || \
	  { echo "missing: Python's shared library, cocotb loads it (Debian package: libpython3-dev)"; exit 1; }
	@touch $@

.PHONY: demo
demo: $(READY)  ## route tokens through a system of hubs and print the report (ARGS="..." for `moe-hub run`)
	@$(BIN)/moe-hub run $(ARGS)

.PHONY: test
test: $(READY)  ## every promise, then the functional coverage (JOBS=2 at a time)
	@rm -rf build/coverage
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not night" tests $(ARGS)
	@$(BIN)/moe-hub bins --short

.PHONY: night
night: $(READY)  ## what `make test` leaves out: planted bugs of the benches, further sizes, other ways (ARGS="-k NAME")
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m night tests $(ARGS)

.PHONY: smoke
smoke: $(READY)  ## under a minute: unit tests and the stream parts under cocotb
	$(BIN)/python -m pytest tests/contract/test_config.py tests/contract/test_formats.py tests/system/test_traces.py \
	  tests/parts/test_lib_memory.py tests/parts/test_lib_parts.py tests/parts/test_lib.py $(ARGS)

.PHONY: verilog
verilog: $(READY)  ## Verilog, AXI wrapper, registers and tool files of every preset into build/<preset>
	@for preset in $(PRESETS); do $(BIN)/moe-hub generate --preset $$preset || exit 1; done

PRESET ?= small
REGISTERS ?= build/registers

.PHONY: registers
registers: $(READY)  ## register manual in HTML, SystemRDL and C header by PeakRDL into build/registers (PRESET=small)
	@$(BIN)/moe-hub registers --systemrdl --preset $(PRESET) --output $(REGISTERS)/moehub.rdl
	$(BIN)/peakrdl html $(REGISTERS)/moehub.rdl -o $(REGISTERS)/html
	$(BIN)/peakrdl c-header $(REGISTERS)/moehub.rdl -o $(REGISTERS)/moehub_peakrdl.h

.PHONY: formal
formal: $(READY)  ## prove the promises with SymbiYosys (ARGS="..." for `moe-hub formal`)
	@$(BIN)/moe-hub formal $(ARGS)

.PHONY: bench
bench: $(READY)  ## measure the design and write the results (ARGS="..." for `moe-hub bench`)
	@$(BIN)/moe-hub bench $(ARGS)

.PHONY: campaign
campaign: $(READY)  ## random traffic on random configurations, judged by the specification (ARGS="--seeds 200 --first 0")
	@$(BIN)/moe-hub campaign $(ARGS)

.PHONY: evaluate
evaluate: $(READY)  ## MoE-Hub against software systems on a model of the whole machine (ARGS="..." for `moe-hub evaluate`)
	@$(BIN)/moe-hub evaluate $(ARGS)

.PHONY: lint
lint: $(READY)  ## Ruff, then Verilator -Wall, Yosys, slang and Icarus on the generated Verilog
	$(BIN)/ruff check .
	@$(BIN)/moe-hub lint $(ARGS)

.PHONY: coverage
coverage: $(READY)  ## all tests once more, counting: bins, lines and branches per block
	@$(BIN)/moe-hub coverage $(ARGS)

.PHONY: mutate
mutate: $(READY)  ## mutants of every block against its bench, results in docs/results/mutation.md (ARGS="BLOCK..." for some)
	@$(BIN)/moe-hub mutate $(ARGS)

LIBERTY ?=

.PHONY: ppa
ppa: $(READY)  ## area and clock of blocks, lane and hub, growth, targets (LIBERTY="FILE..." for standard cells, ARGS="--only STEP")
	@$(BIN)/moe-hub ppa $(foreach file,$(LIBERTY),--liberty $(file)) $(ARGS)

.PHONY: plan
plan: $(READY)  ## write docs/testplan.md anew from docs/testplan/*.toml
	@$(BIN)/moe-hub plan

.PHONY: docs
docs: $(READY)  ## the pages as a site, into build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site: build/site/index.html"

.PHONY: clean
clean:  ## remove build/ and caches (.venv stays)
	rm -rf build .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
