# All but the front by itself is built in the one release profile: the C++ part of torch-sys takes minutes, and each profile
# builds it anew.

CARGO ?= cargo
PYTHON ?= python3
SUITE ?= engine
BENCH ?= *
FLIPS ?= 8
PREFIX ?= $(HOME)/.local
export CARGO

# Cargo brings its own parallel build; make's job slots would only be passed on half-way.
cargo = MAKEFLAGS= MFLAGS= $(CARGO)
target = $(or $(CARGO_TARGET_DIR),target)
programs = $(target)/release
all = --release --locked --workspace
nextest = $(cargo) nextest --version >/dev/null 2>&1

.DEFAULT_GOAL := help
.NOTPARALLEL:
# Many tests wait for a moment of a program, so a few more than there are processors run at once.
export NEXTEST_TEST_THREADS ?= $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))

.PHONY: help setup build front run tests test package wheel reference install install-built uninstall attacks lint bench bench-scripts bench-before gpu-check clean

help: ## show this list
	@echo 'Lowtide explains out-of-memory errors, and trains inside a memory limit.'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: ## find or install LibTorch, tell Cargo where it is (LOWTIDE_TORCH=slim: its CPU parts only)
	@$(PYTHON) scripts/setup

build: setup ## build the programs lowtide and lowtide-engine
	@$(cargo) build --release --locked --workspace --bins

# In a profile of its own, which compiles faster. `make test` never builds it, so nothing is built twice there.
front: ## build lowtide alone, without LibTorch: explain, run, doctor, watch, data, but not train
	@$(cargo) build --profile front --locked -p lowtide-cli

run: build ## train the small default model (ARGS="--limit 512MiB" adds arguments)
	@$(programs)/lowtide train configs/gpt-tiny.yaml $(ARGS)

# Builds both programs too, since tests start them. Not after `build`: without the tests some dependencies have other
# features, and would be built twice.
tests: setup ## build all tests without running them
	@if $(nextest); then $(cargo) nextest run --no-run $(all); else $(cargo) test --no-run $(all) --lib --bins --tests; fi

test: setup ## run all tests
	@$(PYTHON) -B scripts/test_setup.py
	@$(PYTHON) -B scripts/test_dependencies.py
	@if $(nextest); then $(cargo) nextest run $(all); else $(cargo) test $(all) --lib --bins --tests; fi
	@$(cargo) test $(all) --doc
	@$(PYTHON) -B scripts/test_install.py
	@$(PYTHON) -B scripts/test_own_model.py
	@if [ -z "$$LOWTIDE_TORCH_PYTHON" ]; then \
		echo 'not tested: `lowtide run` and `lowtide train` with PyTorch itself (LOWTIDE_TORCH_PYTHON names no Python)'; \
	elif $(nextest); then \
		$(cargo) nextest run $(all) --run-ignored only -E '(package(lowtide-cli) and test(/^run::torch::/)) or test(/^ranks::torchrun::/)'; \
	else \
		$(cargo) test $(all) --test it -- --ignored --test-threads 2 run::torch:: ranks::torchrun::; \
	fi
	@if [ -z "$$LOWTIDE_TORCH_PYTHON" ]; then \
		echo 'not tested: the Python package (LOWTIDE_TORCH_PYTHON names no Python)'; \
	else \
		CARGO_TARGET_DIR='$(abspath $(target))' $(PYTHON) -B scripts/test_python.py; \
	fi
	@for program in man zsh; do \
		if ! command -v $$program >/dev/null; then \
			echo "not tested: what needs $$program, which is not installed"; \
		elif $(nextest); then \
			$(cargo) nextest run $(all) --run-ignored only -E "package(lowtide-cli) and test(/^with_$$program::/)" || exit 1; \
		else \
			$(cargo) test $(all) --test it -- --ignored with_$$program:: || exit 1; \
		fi; \
	done
	@$(MAKE) --no-print-directory attacks

wheel: ## build the wheel of the Python package into dist/
	@$(PYTHON) -B scripts/wheel

libraries = config core disk explain log oom pickle sensors sim tensorboard tensorfile trainers

package: ## pack the crates that others can use by themselves, and build each from its package
	@$(cargo) package --locked --allow-dirty $(libraries:%=-p lowtide-%)

# The engine finds LibTorch where `make setup` has put it, so this folder has to stay.
install: programs = $(target)/$(if $(filter engine,$(WITH)),release,front)
install: $(if $(filter engine,$(WITH)),build,front) install-built ## install lowtide to PREFIX (~/.local), with completions and manual; WITH=engine: to train, too

completions = bash:bash-completion/completions/lowtide zsh:zsh/site-functions/_lowtide fish:fish/vendor_completions.d/lowtide.fish
installed = $(DESTDIR)$(PREFIX)

install-built:
	@install -d '$(installed)/bin'
	@install -s -m 755 '$(programs)/lowtide' $(if $(filter engine,$(WITH)),'$(programs)/lowtide-engine') '$(installed)/bin'
	@for each in $(completions); do \
		file='$(installed)/share/'"$${each#*:}"; \
		install -d "$${file%/*}" && '$(programs)/lowtide' completions "$${each%%:*}" >"$$file" || exit 1; \
	done
	@'$(programs)/lowtide' man '$(installed)/share/man/man1'
	@echo 'installed to $(installed); make uninstall takes it away again'
	@case ":$$PATH:" in *:'$(PREFIX)/bin':*) ;; *) echo 'add $(PREFIX)/bin to PATH to type lowtide from anywhere' ;; esac

uninstall: ## take away what make install has put into PREFIX
	@rm -f '$(installed)/bin/lowtide' '$(installed)/bin/lowtide-engine' '$(installed)'/share/man/man1/lowtide.1 '$(installed)'/share/man/man1/lowtide-*.1
	@for each in $(completions); do rm -f '$(installed)/share/'"$${each#*:}"; done

reference: ## write docs/reference/cli.md and events.md anew, from what the program declares
	@LOWTIDE_WRITE_REFERENCE=1 $(cargo) test --release --locked -p lowtide-args -p lowtide-core --test it reference

# Not after `build`, for the same reason as `tests`: what is there is what `make test` has built.
attacks: ## attack the built programs with hostile files, names, limits and connections (FLIPS=100: more flipped bits)
	@CARGO_TARGET_DIR='$(target)' $(PYTHON) -B attacks/run --flips $(FLIPS)

# Fuzz targets are checked and not linked, so libFuzzer itself need not be compiled.
lint: setup ## check the format, run clippy, and check documentation, dependencies and fuzz targets
	@$(cargo) fmt --all --check
	@$(PYTHON) -B scripts/dependencies
	@$(PYTHON) -B scripts/links
	@$(cargo) clippy $(all) --all-targets -- -D warnings
	@RUSTDOCFLAGS='-D warnings' $(cargo) doc $(all) --no-deps
	@CUSTOM_LIBFUZZER_PATH=/none/libfuzzer.a $(cargo) check --release --locked --manifest-path fuzz/Cargo.toml --target-dir $(target)

bench: setup ## run the benches (BENCH=name for one of them; more in benches/)
	@$(cargo) bench --profile release --locked --workspace --bench '$(BENCH)'
	@if [ '$(BENCH)' = '*' ]; then $(MAKE) --no-print-directory bench-scripts; fi

# What in benches/ needs neither torch nor other libraries.
bench-scripts: build
	@$(cargo) build --release --locked -p lowtide-data --example feed
	@folder=$$(mktemp -d) && trap "rm -rf $$folder" EXIT && \
		$(programs)/lowtide generate scoring --out $$folder/data --samples 4000 --per-file 40 && \
		$(PYTHON) -B benches/independent_cache.py $$folder/data
	@$(MAKE) --no-print-directory bench-before

# The last commit before `explain` was written for what people post, and `run` for their scripts.
BEFORE ?= cb00c01

bench-before: ## compare explain and run with those of an older commit, in turn (BEFORE=commit)
	@$(cargo) build --release --locked -p lowtide-cli
	@folder=$(abspath $(target))/before; \
	git rev-parse --quiet --verify '$(BEFORE)^{commit}' >/dev/null || { echo 'there is no commit $(BEFORE) here to compare with'; exit 0; }; \
	test -d $$folder/source || git worktree add --quiet --detach $$folder/source $(BEFORE); \
	git -C $$folder/source checkout --quiet --detach $(BEFORE) && \
	(cd $$folder/source && CARGO_TARGET_DIR=$$folder/target $(cargo) build --release --locked -p lowtide-cli) && \
	$(PYTHON) -B benches/before_and_after.py $$folder/target/release/lowtide $(programs)/lowtide

gpu-check: setup ## run the checks that need a GPU (SUITE=engine, hold-gpt, hold-qca, validate, keep, python, reserve, inside, ranks, graphs or speed)
	@scripts/gpu-check $(SUITE)

clean: ## delete what was built; LibTorch in .venv stays
	@$(cargo) clean
	@rm -rf bundle
