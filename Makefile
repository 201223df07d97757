# Builds, tests and packages mq9. Needs Python 3.11 or newer, cargo and a C compiler; the rest is
# set up in .venv. Only what has changed is built again.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The first interpreter on PATH that is new enough.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
FUZZ_SECONDS ?= 60
FUZZ_PROTOCOL_SECONDS ?= $(FUZZ_SECONDS)
FUZZ_TARGETS ?= $(patsubst $(FUZZ)/fuzz_targets/%.rs,%,$(wildcard $(FUZZ)/fuzz_targets/*.rs))

# What criterion spends on each measurement of a benchmark that does not say so itself.
BENCH_TIMES ?= --warm-up-time 0.3 --measurement-time 1 --sample-size 20

# A quick run must not replace what was measured.
BENCH_OUT := .build/bench$(if $(QUICK),-quick)

BIN := .venv/bin
FUZZ := rust_core/fuzz
DOCS_VENV := .build/docs-venv
# Words that only look like others spelled wrong.
SPELLED := *.md docs examples python rust_core spark benches deploy
NOT_SPELLED := */node_modules/*,*/target/*,*.so,*.svg,*.lock,*/seeds/*,*.txt
SPELLED_RIGHT := nats,unparseable
WHEEL_VENV := .build/wheel-venv

# Stamps: .venv has what serving needs; the package is built and installed in .venv; .venv has the tools of development.
SERVING := .venv/.serving
INSTALLED := .venv/.installed
TOOLS := .venv/.tools
DEVELOPED := $(INSTALLED) $(TOOLS)

# The `nats` command line that tests talk to the server with. Where there is no Go (or with GO=), those
# tests are skipped.
GO ?= $(shell command -v go)
NATS_CLI_MODULE := github.com/nats-io/natscli
NATS_CLI_VERSION := v0.3.0
NATS_CLI := .build/go/bin/nats
NATS_CLI_BUILT := .build/go/nats-$(NATS_CLI_VERSION)

# What tests use of npm: the MCP inspector, and the NATS client of the example in TypeScript. Without npm (or with NPM=) those
# tests are skipped.
NPM ?= $(shell command -v npm)
NPM_TOOLS := .build/npm/.installed

# Folders are listed too, so that a removed file is noticed.
BINDING_SOURCES := $(shell find rust_core/src rust_core/binding rust_core/export/src rust_core/export/Cargo.toml rust_core/runtime/src rust_core/runtime/Cargo.toml rust_core/node/src rust_core/node/Cargo.toml rust_core/cluster/src rust_core/cluster/Cargo.toml -type d -o -name '*.rs' -o -name Cargo.toml)

# The flags cargo-fuzz sets, without the sanitizers that need a nightly toolchain.
FUZZ_RUSTFLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Clink-dead-code -Ccodegen-units=1
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# An explicit --target keeps the flags away from build scripts.
FUZZ_BUILD = --locked --release --manifest-path $(FUZZ)/Cargo.toml --target-dir $(FUZZ)/target --target $(HOST)

# Keeps the folders of the machine that built it out of the wheel. The same flags for everything that is built here,
# so that nothing is built twice.
CARGO_HOME ?= $(HOME)/.cargo
export RUSTFLAGS := --remap-path-prefix=$(CURDIR)=mq9 --remap-path-prefix=$(CARGO_HOME)=cargo

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Any virtual environment the caller is in must not be mistaken for ours.
export VIRTUAL_ENV := $(CURDIR)/.venv
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH
# Tests start Python a thousand times: what it has compiled must be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(DEVELOPED) ## Create .venv with the locked tools and build mq9 into it

.PHONY: serve
serve: $(INSTALLED) ## Build mq9 and run the broker
	@$(BIN)/mq9 serve $(ARGS)

.PHONY: cluster
cluster: $(DEVELOPED) ## Build mq9 and run three nodes on three nats-servers, all on this machine
	@$(BIN)/mq9 cluster up --local 3 $(ARGS)

.PHONY: test
test: ## Run all tests: those of Rust beside those of Python, many of which wait
	@$(MAKE) -j2 test-py-together test-rust-aside
	@$(MAKE) test-py-alone

.PHONY: test-rust
test-rust: ## Run the tests of the Rust core
	@.ci/require cargo cc
	nice -n 5 cargo test --locked

# What they print comes when they have ended.
.PHONY: test-rust-aside
test-rust-aside:
	@mkdir -p .build
	@$(MAKE) test-rust > .build/test-rust.log 2>&1; ended=$$?; cat .build/test-rust.log; exit $$ended

# What takes long to build for tests, besides the package itself.
.PHONY: test-builds
test-builds: $(if $(GO),$(NATS_CLI_BUILT))
	@$(if $(NPM),$(MAKE) npm-tools || [ -z "$$CI" ])
	cargo test --locked --no-run

.PHONY: test-py
test-py: ## Run the Python tests, in some processes side by side
	@$(MAKE) test-py-together
	@$(MAKE) test-py-alone

.PHONY: chromium
chromium: ## Install Debian's Chromium and Prometheus, which the tests of the page and of alerts need
	$(if $(filter 0,$(shell id -u)),,sudo) apt-get install --yes --no-install-recommends chromium prometheus

.PHONY: pictures
pictures: $(DEVELOPED) ## Take the pictures of the page that the docs show; needs Chromium, takes two minutes
	$(BIN)/python -m tests.browser.pictures docs/img $(ARGS)

.PHONY: report-pictures
report-pictures: $(DEVELOPED) ## Take pictures of the report of mq9 lake, wide and narrow, of little and much, into .build/pictures
	$(BIN)/python -m tests.browser.report_pictures .build/pictures --docs docs/img/report.png

.PHONY: site-pictures
site-pictures: $(DEVELOPED) docs ## Take pictures of the site on a wide and a narrow screen, into .build/pictures
	$(BIN)/python -m tests.browser.site_pictures .build/pictures

.PHONY: postgres
postgres: ## Install Debian's PostgreSQL, which the tests of copied dead letters start
	$(if $(filter 0,$(shell id -u)),,sudo) apt-get install --yes --no-install-recommends postgresql

.PHONY: test-py-together
test-py-together: $(DEVELOPED) $(if $(GO),$(NATS_CLI_BUILT))
	$(BIN)/pytest -n auto -p no:benchmark -m "not alone"

.PHONY: test-py-alone
test-py-alone: $(DEVELOPED)
	$(BIN)/pytest -p no:benchmark -m alone

.PHONY: nats-cli
nats-cli: $(NATS_CLI_BUILT) ## Build the nats command line that tests use; needs Go, takes minutes

.PHONY: npm-tools
npm-tools: $(NPM_TOOLS) ## Get what tests use of npm

.PHONY: test-wheel
test-wheel: wheel ## Install the wheel, then the source tree, into empty environments and test each
	@set -- dist/*.whl; case "$$#:$$1" in 1:dist/mq9-*-cp311-abi3-*.whl) ;; \
		*) echo "mq9: expected one cp311-abi3 wheel, found: $$*" >&2; exit 1 ;; esac
	@set -e; for source in dist/*.whl '.[manage]'; do \
		echo "pip install $$source"; \
		rm -rf $(WHEEL_VENV); \
		$(BIN)/python -m venv $(WHEEL_VENV); \
		$(WHEEL_VENV)/bin/pip install --quiet "$$source"; \
		MQ9_TEST_EXTRAS="$$(expr "$$source" : '.*\[\(.*\)\]')" \
		MQ9_TEST_PYTHON=$(CURDIR)/$(WHEEL_VENV)/bin/python $(BIN)/pytest -q tests/packaging; \
	done

.PHONY: lint
lint: ## Check format, lints, types, stubs and the direction of dependencies
	@$(MAKE) -j2 --output-sync=target lint-py lint-rust

# With the profile of the tests: what is built for them, such as C code, is not built twice.
# Nothing is linked: the fuzzer in C++ is not compiled, since it is told that it lies elsewhere.
.PHONY: lint-rust
lint-rust: | $(BIN)/pip
	@.ci/require cargo cc rustfmt clippy $(if $(FUZZ_TARGETS),c++)
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --profile test -- -D warnings
ifneq ($(FUZZ_TARGETS),)
	cargo fmt --manifest-path $(FUZZ)/Cargo.toml --check
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/$(FUZZ)/Cargo.toml \
		cargo clippy --locked --manifest-path $(FUZZ)/Cargo.toml --target-dir target --all-targets --profile test -- -D warnings
endif

.PHONY: lint-py
lint-py: $(DEVELOPED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/stubtest mq9._core
	$(BIN)/pytest -q tests/architecture

.PHONY: fmt
fmt: $(TOOLS) ## Format Rust and Python
	@.ci/require cargo rustfmt
	cargo fmt --all
	$(if $(FUZZ_TARGETS),cargo fmt --manifest-path $(FUZZ)/Cargo.toml)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: bench
bench: ## Measure the core, calls from Python, and mq9 beside JetStream and Redis; the tables come last
	@$(MAKE) bench-core
	@$(MAKE) bench-python
	@$(MAKE) bench-servers

.PHONY: bench-quick
bench-quick: ## The same with little data, to see that all of it runs
	@QUICK=1 $(MAKE) bench BENCH_TIMES=--quick ARGS="--quick $(ARGS)"

.PHONY: bench-core
bench-core: ## Run the benchmarks of the Rust core; the table of limits comes last
	@.ci/require cargo cc
	cargo bench --locked -p mq9-benches --bench lane --bench timer_wheel --bench store --bench tls -- $(BENCH_TIMES)
	cargo bench --locked -p mq9-benches --bench yardstick

.PHONY: bench-python
bench-python: $(DEVELOPED) ## Measure calls of the client and of the binding
	@mkdir -p $(BENCH_OUT)
	$(BIN)/pytest -q -o pythonpath=benches benches/test_python_surface.py --benchmark-json=$(BENCH_OUT)/python.json \
		--benchmark-columns=median,iqr,min,max,rounds --benchmark-sort=name

.PHONY: bench-servers
bench-servers: $(DEVELOPED) ## Compare mq9 with JetStream and Redis; results land in .build/bench
	@.ci/require cargo cc
	$(BIN)/python benches/mailboxes.py $(ARGS)

.PHONY: bench-report
bench-report: $(DEVELOPED) ## Write docs/benchmarks.md from what was measured last
	$(BIN)/python benches/mailboxes.py --stored --report $(ARGS)

.PHONY: peers
peers: $(TOOLS) ## Get the servers that mq9 is compared with into .build/peers
	@benches/get_peers .build/peers

.PHONY: bench-nats
bench-nats: $(DEVELOPED) ## Compare mq9 with a real nats-server; results land in .build/bench-nats
	@.ci/require cargo cc
	$(BIN)/python benches/nats_core.py $(ARGS)

.PHONY: bench-push
bench-push: $(DEVELOPED) ## Compare what mq9, JetStream and Redis push; results land in .build/bench-push
	@.ci/require cargo cc
	$(BIN)/python benches/pushes.py $(ARGS)

.PHONY: bench-push-memory
bench-push-memory: $(DEVELOPED) ## Measure what push takes of the broker's memory, with 10 million messages and 10,000 subscribers
	@.ci/require cargo cc
	$(BIN)/python benches/push_memory.py $(ARGS)

.PHONY: bench-queues
bench-queues: $(DEVELOPED) ## Compare work queues with nats-server's; results land in .build/bench-queues
	@.ci/require cargo cc
	$(BIN)/python benches/queues.py $(ARGS)

.PHONY: bench-cluster
bench-cluster: $(DEVELOPED) ## Compare three nodes with a JetStream stream of three copies; ARGS=--report writes the page
	@.ci/require cargo cc
	$(BIN)/python benches/cluster.py $(ARGS)

.PHONY: bench-before
bench-before: $(DEVELOPED) ## Compare mq9 with an earlier commit of itself, which is built below .build; ARGS=--report writes the page
	@.ci/require cargo cc git
	$(BIN)/python benches/before_after.py $(ARGS)

.PHONY: bench-bystanders
bench-bystanders: $(DEVELOPED) ## Measure SENDs beside others who keep Python busy; results land in .build/bench-bystanders
	@.ci/require cargo cc
	$(BIN)/python benches/bystanders.py $(ARGS)

.PHONY: bench-management
bench-management: $(DEVELOPED) ## Measure SENDs with the page open and metrics scraped, and without; ARGS=--report writes the page
	@.ci/require cargo cc
	$(BIN)/python benches/management.py $(ARGS)

.PHONY: bench-pages
bench-pages: $(DEVELOPED) ## Measure how long pages of lists take that management has of a million mailboxes
	$(BIN)/python benches/pages.py $(ARGS)

.PHONY: faults
faults: $(DEVELOPED) ## Kill, cut, fill, flip, jump and attack the broker; N=500 kills it 500 times
	@.ci/require cargo cc
	@$(BIN)/python -m tests.faults --kills $(or $(N),20) $(ARGS)

.PHONY: faults-cluster
faults-cluster: $(DEVELOPED) ## Kill, stop, cut off and fill nodes and nats-servers of a cluster under load; N=100 for a hundred faults
	@$(BIN)/python -m tests.cluster.faults $(if $(N),--faults $(N)) $(ARGS)

.PHONY: bench-registry
bench-registry: $(DEVELOPED) ## Find agents while messages flow; results land in .build/bench-registry
	@.ci/require cargo cc
	$(BIN)/python benches/registry.py $(ARGS)

# DuckDB is a yardstick and no part of anything, so it is not among the locked tools.
.PHONY: bench-lake
bench-lake: $(DEVELOPED) ## Time the Spark jobs before and after, beside DuckDB; a stream over 90 days
	$(BIN)/pip install --quiet --upgrade --no-deps --target .build/duckdb duckdb==2.0.0
	$(BIN)/python benches/lake.py --report $(ARGS)

.PHONY: pipeline
pipeline: $(DEVELOPED) ## Traffic, export, Spark jobs and report, into .build/pipeline
	$(BIN)/python spark/pipeline.py .build/pipeline $(ARGS)

.PHONY: bench-export
bench-export: $(DEVELOPED) ## Measure the export, and SEND with and without it
	@.ci/require cargo cc
	$(BIN)/python benches/export.py $(ARGS)

.PHONY: bench-local
bench-local: $(DEVELOPED) ## Measure mail in plain files beside SQLite and, if it is installed, persist-queue
	$(BIN)/python benches/local_queue.py $(ARGS)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZ_SECONDS (60)
ifeq ($(FUZZ_TARGETS),)
	@echo "mq9: no fuzz targets in $(FUZZ)/fuzz_targets"
else
	@$(MAKE) fuzz-build
	@set -e; for target in $(FUZZ_TARGETS); do \
		echo "fuzz $$target for $(FUZZ_SECONDS) s"; \
		corpus=.build/fuzz/$$target seeds=$(FUZZ)/seeds/$$target artifacts=$(FUZZ)/artifacts/$$target; \
		mkdir -p $$corpus $$artifacts; \
		[ -d $$seeds ] || seeds=; \
		$(FUZZ)/target/$(HOST)/release/$$target -max_total_time=$(FUZZ_SECONDS) \
			-print_final_stats=1 -artifact_prefix=$$artifacts/ $$corpus $$seeds; \
	done
endif

.PHONY: fuzz-build
fuzz-build:
	@.ci/require cargo cc c++
	RUSTFLAGS="$(FUZZ_RUSTFLAGS)" cargo build $(FUZZ_BUILD) $(FUZZ_TARGETS:%=--bin %)

.PHONY: fuzz-protocol
fuzz-protocol: $(DEVELOPED) ## Fuzz a running broker for FUZZ_SECONDS (60), while others use it
	MQ9_FAULTS_FUZZ_S=$(FUZZ_PROTOCOL_SECONDS) $(BIN)/pytest -q tests/faults/test_clients.py -k fuzzed

.PHONY: wheel
wheel: $(TOOLS) ## Build the wheel into dist/
	@.ci/require cargo cc
	rm -f dist/mq9-*.whl
	$(BIN)/maturin build --release --locked --strip --interpreter $(BIN)/python --out dist
	$(BIN)/python .ci/check-wheel dist/mq9-*.whl

COMPILE := $(BIN)/uv --no-config pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make lock"

# Any warning fails: a page outside of the contents, a link that leads nowhere, a name the API does not have.
.PHONY: docs
docs: $(DOCS_VENV)/.tools ## Check the prose and build the site into .build/site
	$(DOCS_VENV)/bin/codespell $(SPELLED) --skip '$(NOT_SPELLED)' --ignore-words-list=$(SPELLED_RIGHT)
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

.PHONY: docs-serve
docs-serve: $(DOCS_VENV)/.tools ## Show the site on http://127.0.0.1:8000, changes at once
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs serve

.PHONY: lock
lock: $(TOOLS) ## Bring the locked versions of all dependencies up to date
	@.ci/require cargo
	cargo update
	$(if $(FUZZ_TARGETS),cargo update --manifest-path $(FUZZ)/Cargo.toml)
	$(COMPILE) --all-extras --output-file requirements-dev.lock pyproject.toml requirements-dev.in
	echo maturin | $(COMPILE) --constraints requirements-dev.lock --output-file requirements.lock pyproject.toml -
	$(COMPILE) --output-file requirements-docs.lock requirements-docs.in

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf .venv .build dist target $(FUZZ)/target .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf examples/typescript_and_go/node_modules
	find python spark tests -name __pycache__ -prune -exec rm -rf {} +
	rm -f python/mq9/_core*.so

.PHONY: check-tools
check-tools:
	@PYTHON="$(PYTHON)" .ci/require python cargo cc c++ rustfmt clippy

$(BIN)/pip:
	@PYTHON="$(PYTHON)" .ci/require python cargo cc
	$(PYTHON) -m venv .venv

# Python compiles what is used when it is used: a fifth of all of it.
$(SERVING): requirements.lock | $(BIN)/pip
	$(BIN)/pip install --quiet --no-compile --require-hashes -r requirements.lock
	@touch $@

$(TOOLS): requirements-dev.lock $(SERVING)
	$(BIN)/pip install --quiet --no-compile --require-hashes -r requirements-dev.lock
	@touch $@

$(DOCS_VENV)/.tools: requirements-docs.lock | $(BIN)/pip
	$(BIN)/python -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --no-compile --require-hashes -r requirements-docs.lock
	@touch $@

$(INSTALLED): $(SERVING) pyproject.toml Cargo.toml Cargo.lock rust_core/Cargo.toml $(BINDING_SOURCES)
	@.ci/require cargo cc
	$(BIN)/maturin develop --release --locked
	@touch $@

$(NPM_TOOLS): tests/npm/package.json tests/npm/package-lock.json examples/typescript_and_go/package-lock.json
	@[ -n "$(NPM)" ] || { echo "mq9: missing: npm" >&2; exit 1; }
	@mkdir -p $(dir $@)
	cp tests/npm/*.json $(dir $@)
	cd $(dir $@) && $(NPM) ci --silent --no-audit --no-fund --ignore-scripts
	cd examples/typescript_and_go && $(NPM) ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# The versions of all that it is made of are those of its own go.sum. `go install` would do as well, if every
# module proxy gave it the list of all versions that it asks for.
# Neither optimised nor with tables for debuggers, by a compiler that hardly collects garbage: half the work.
$(NATS_CLI_BUILT):
	@[ -n "$(GO)" ] || { echo "mq9: missing: go, which the nats command line is built with" >&2; exit 1; }
	@mkdir -p $(dir $(NATS_CLI))
	@folder=$$($(GO) mod download -json $(NATS_CLI_MODULE)@$(NATS_CLI_VERSION) | \
		sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$$/\1/p') && \
	cd "$$folder" && echo "go build $(NATS_CLI_MODULE)/nats@$(NATS_CLI_VERSION)" && \
	GOGC=800 $(GO) build -trimpath -buildvcs=false -gcflags='all=-N -l' -ldflags='-s -w' -o $(CURDIR)/$(NATS_CLI) ./nats
	@touch $@
