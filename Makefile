# Everything is built in the one release profile: the C++ part of torch-sys takes minutes, and each profile builds it
# anew.

CARGO ?= cargo
PYTHON ?= python3
SUITE ?= engine
BENCH ?= *
export CARGO

# Cargo brings its own parallel build; make's job slots would only be passed on half-way.
cargo = MAKEFLAGS= MFLAGS= $(CARGO)
programs = $(or $(CARGO_TARGET_DIR),target)/release

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build front run test lint bench bench-scripts gpu-check clean

help: ## show this list
	@echo 'Lowtide trains neural networks inside a memory line.'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: ## find or install LibTorch, tell Cargo where it is (LOWTIDE_TORCH=slim: its CPU parts only)
	@$(PYTHON) scripts/setup

build: setup ## build the programs lowtide and lowtide-engine
	@$(cargo) build --release --workspace --bins

front: ## build lowtide alone, without LibTorch: explain, run, doctor, watch, data, but not train
	@$(cargo) build --release -p lowtide-cli

run: build ## train the small default model (ARGS="--line 512MiB" adds arguments)
	@$(programs)/lowtide train configs/gpt-tiny.yaml $(ARGS)

test: build ## run all tests
	@$(PYTHON) -B scripts/test_setup.py
	@if $(cargo) nextest --version >/dev/null 2>&1; then \
		$(cargo) nextest run --release --workspace; \
	else \
		$(cargo) test --release --workspace --lib --bins --tests; \
	fi
	@$(cargo) test --release --workspace --doc
	@if [ -n "$$LOWTIDE_TORCH_PYTHON" ]; then \
		$(cargo) test --release -p lowtide-cli --test it -- --ignored --test-threads 2 run::torch::; \
	else \
		echo 'not tested: `lowtide run` with PyTorch itself (LOWTIDE_TORCH_PYTHON names no Python)'; \
	fi

lint: setup ## check the format and run clippy
	@$(cargo) fmt --all --check
	@$(cargo) clippy --release --workspace --all-targets -- -D warnings

bench: setup ## run the benches (BENCH=name for one of them; more in benches/)
	@$(cargo) bench --profile release --workspace --bench '$(BENCH)'
	@if [ '$(BENCH)' = '*' ]; then $(MAKE) --no-print-directory bench-scripts; fi

# What in benches/ needs neither torch nor other libraries.
bench-scripts: build
	@$(cargo) build --release -p lowtide-data --example feed
	@folder=$$(mktemp -d) && trap "rm -rf $$folder" EXIT && \
		$(programs)/lowtide generate scoring --out $$folder/data --samples 4000 --per-file 40 && \
		$(PYTHON) -B benches/independent_cache.py $$folder/data

gpu-check: setup ## run the checks that need a GPU (SUITE=engine, hold-gpt, hold-qca, validate or keep)
	@scripts/gpu-check $(SUITE)

clean: ## delete what was built; LibTorch in .venv stays
	@$(cargo) clean
	@rm -rf bundle
