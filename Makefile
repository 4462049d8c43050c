# Midspan's tasks. `make demo` is the first thing to try; CONTRIBUTING.md explains the rest.

export PATH := $(HOME)/.cargo/bin:$(PATH)

# Tests need a user that may make network namespaces: root, or root of a user namespace.
as_namespace_root := $(if $(filter 0,$(shell id -u)),,unshare --user --map-root-user)

PREFIX ?= /usr/local

.PHONY: help dependencies build build-demo install demo demo-busy test test-kernel test-monitoring test-page model wheel test-python bench-dask test-slurm soak still lint bench verify conformance conformance-self-test real-clients phases steady many test-vm deb package-test arm64 image release fuzz fuzz-coverage fuzz-self-test docs site clean

help:
	@echo "make demo    install what is missing, build, show a download over a bad path with and without Midspan"
	@echo "make demo-busy  the demo on an idle machine and next to one busy program: same results (7 minutes)"
	@echo "make install build, and put the program, its unit files and its documents under $(PREFIX)"
	@echo "make test    run all tests (under 30 minutes)"
	@echo "make test-kernel  build the kernel tests once, run them REPEAT times, list those that needed a second try"
	@echo "make test-monitoring  the board and the alerts of deploy/, with a real Prometheus and Alertmanager"
	@echo "make test-page  the page of the admin listener in Chromium; skipped if Chromium or Node.js is missing"
	@echo "make soak    200,000 sessions over a lossy path, with resets, reloads and restarts; a full table (7 minutes)"
	@echo "make phases  a million sessions in ten phases in which every fault happens again and again; resumable (25 minutes)"
	@echo "make steady  an hour at a steady rate: memory and descriptors stay the same"
	@echo "make still   eight busy programs next to Midspan: no thread is assumed to be stuck (10 minutes)"
	@echo "make model   run a relay thread above a simulated kernel: STEPS=100000000 SEED=1 (an hour)"
	@echo "make many    one relay thread with 400,000 sessions above a simulated kernel: turns, memory (a minute)"
	@echo "make lint    check format, lints, documentation, words of the lexicon, circles between modules"
	@echo "make verify  measure the emulated links against independent clocks (midspan lab verify)"
	@echo "make conformance            try Midspan, HAProxy and nginx at every edge of TCP (midspan conformance)"
	@echo "make conformance-self-test  require that the fault in each seeded build is found"
	@echo "make real-clients           try ssh, curl, git, databases and others through Midspan, compared with plain routing"
	@echo "make deb                    build the packages midspan and midspan-lab into target/debian"
	@echo "make package-test           test the packages: lintian, piuparts, fresh Debian 12 and 13, upgrade and back"
	@echo "make arm64                  build the packages for arm64, test the pure crates on an emulated processor"
	@echo "make image                  build an OCI image with the package midspan, run it, check the Kubernetes manifest"
	@echo "make release                build and check all files of a release into target/release-files"
	@echo "make test-vm                run kernel tests, and Midspan under systemd, on emulated Debian 12 and 13 (root; hours, in steps)"
	@echo "make fuzz                   fuzz every parser of outside input (up to 8 hours)"
	@echo "make fuzz-coverage          print which lines of each parser its corpus reaches"
	@echo "make fuzz-self-test         require that a planted fault in each parser is found"
	@echo "make bench   compare Midspan with HAProxy, nginx and plain routing; measure I/O loops, midspan top"
	@echo "make docs    build the API documentation into target/doc"
	@echo "make site    build the pages of docs as a site into target/site (installs mdBook into target if it is missing)"

dependencies:
	@scripts/install-dependencies

build: dependencies
	cargo build --release --package midspan

# Only what a gateway needs: no programs of the lab. PROGRAM=FILE installs this build of midspan and
# builds nothing.
PROGRAM ?=

install:
ifeq ($(PROGRAM),)
	@scripts/install-dependencies build
	cargo build --release --package midspan
endif
	install -D --mode=755 $(or $(PROGRAM),target/release/midspan) $(DESTDIR)$(PREFIX)/bin/midspan
	for unit in $(notdir $(wildcard deploy/*.service)); do \
		install -D --mode=644 deploy/$$unit $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit && \
		sed --in-place 's|^\(Exec[A-Za-z]*=-*\)/[^ ]*/midspan|\1$(PREFIX)/bin/midspan|' \
			$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; \
	done
	pages=$$(mktemp --directory) && \
	$(or $(PROGRAM),target/release/midspan) manual --date $$(date +%Y-%m-%d) --output-directory $$pages && \
	for page in $$pages/*/usr/share/man/man*/*; do \
		install -D --mode=644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/} || exit 1; \
	done && rm --recursive $$pages
	for page in $(notdir $(wildcard docs/*.md)); do \
		install -D --mode=644 docs/$$page $(DESTDIR)$(PREFIX)/share/doc/midspan/$$page; \
	done
	install -D --mode=644 deploy/midspan.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/midspan.conf
	if [ -z "$(DESTDIR)" ] && command -v systemd-sysusers >/dev/null; then systemd-sysusers midspan.conf; fi

# Not optimized: it compiles in half the time of a release. The demo's path has 20 Mbit/s.
build-demo: dependencies
	cargo build --profile demo --package midspan

demo: build-demo
	target/demo/midspan demo

demo-busy: build-demo
	scripts/demo-busy target/demo/midspan

# Kernel tests that passed in their second try only (MIDSPAN_TEST_TRIES=2) are listed at the end.
second_tries := $(CURDIR)/target/second-tries

test: dependencies
	@scripts/install-dependencies test
	@mkdir -p target && rm -f $(second_tries)
	MIDSPAN_SECOND_TRIES=$(second_tries) $(as_namespace_root) cargo test --workspace --no-fail-fast; \
	status=$$?; scripts/second-tries $(second_tries); exit $$status

# For example: make test-kernel REPEAT=10
REPEAT ?= 1

test-kernel: dependencies
	@scripts/install-dependencies test
	$(as_namespace_root) scripts/test-kernel $(REPEAT)

test-monitoring: dependencies
	@scripts/install-dependencies monitoring
	$(as_namespace_root) cargo test --package midspan-proxy --test monitoring

# Chromium, Node.js and npm are large, so they are not installed: without them, the test is skipped. The
# versions are fixed, because newer rules of axe may find more.
page_packages := playwright-core@1.65.1 axe-core@4.14.1

test-page: dependencies
	@mkdir -p target/page
	@command -v npm >/dev/null || echo "npm is missing, so the packages of the test are not installed"
	@! command -v npm >/dev/null || npm install --prefix target/page --no-save --no-audit --no-fund --silent $(page_packages) \
		|| echo "npm cannot install $(page_packages)"
	$(as_namespace_root) cargo test --package midspan-proxy --test page -- --nocapture

# Python's package: docs/python.md. Not part of make test, because it installs large packages of others.
wheel:
	scripts/wheel

test-python: dependencies
	$(as_namespace_root) scripts/test-python

# A sweep on workers of Dask beside threads, in the environment of make test-python.
bench-dask:
	@test -x target/python/environment/bin/python || { echo "make test-python makes the environment first"; exit 1; }
	target/python/environment/bin/python python/benches/dask_overhead.py

test-slurm: dependencies
	@scripts/install-dependencies slurm
	$(as_namespace_root) scripts/test-slurm

soak: dependencies
	MIDSPAN_SOAK=full MIDSPAN_TEST_LIMIT=3600 $(as_namespace_root) cargo test --package midspan-proxy --test kernel -- soak --nocapture

# A phase that has passed with this build is not repeated. For example: make phases RECORD=phases.txt
phases: dependencies
	@mkdir -p target
	MIDSPAN_PHASES=$(abspath $(or $(RECORD),target/phases.txt)) MIDSPAN_TEST_LIMIT=7200 $(as_namespace_root) \
		cargo test --package midspan-proxy --test kernel -- every_fault_happens --nocapture

steady: MINUTES := 60
steady: dependencies
	MIDSPAN_STEADY=$(MINUTES) MIDSPAN_TEST_LIMIT=7200 $(as_namespace_root) \
		cargo test --package midspan-proxy --test kernel -- memory_and_descriptors_stay --nocapture

still: dependencies
	MIDSPAN_BUSY=full MIDSPAN_TEST_LIMIT=3600 $(as_namespace_root) cargo test --package midspan-proxy --test kernel -- busy --nocapture

# A failure names its seed and its step.
STEPS ?= 100000000
SEED ?= 1

model: dependencies
	MIDSPAN_MODEL_STEPS=$(STEPS) MIDSPAN_MODEL_SEED=$(SEED) cargo test --release --package midspan-relay --lib \
		-- thread::tests::model::no_byte --nocapture

# One relay thread with very many sessions above a kernel without sockets: turns, memory, time when idle.
many: dependencies
	MIDSPAN_MANY=400000 cargo test --release --package midspan-relay --lib -- thread::tests::many --nocapture

# Always the whole workspace: other choices give crates other features, with which they are checked again.
lint: dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --no-default-features --all-targets -- -D warnings
	cargo clippy --workspace --test monitoring --test page -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	scripts/check-tests --self-test
	scripts/check-tests
	scripts/check-text --self-test
	scripts/check-text
	scripts/outside-links --self-test
	cargo run --quiet --package midspan-layering -- --allowed crates/layering/allowed.txt

bench: build
	target/release/midspan lab geo --against direct,haproxy,midspan --repetitions 3
	target/release/midspan lab geo-clean --against direct,haproxy,midspan --repetitions 3
	cargo build --release --package peers && target/release/peers
	cargo run --release --package relay-shell
	cargo run --release --package simulator-speed
	cargo run --release --package connection-setup
	cargo run --release --package top-ping
	cargo run --release --package upgrade-gaps

verify: build
	target/release/midspan lab verify

# HAProxy and nginx differ, so the exit status is 3 (docs/conformance.md).
conformance: build
	target/release/midspan conformance --against midspan-forward,midspan-transparent,midspan-early,midspan-express,midspan-socks5,midspan-http,midspan-proxy-protocol,midspan-hops,midspan-hops-tls,midspan-hops-client-source,haproxy,nginx

conformance-self-test: dependencies
	$(as_namespace_root) cargo test --package midspan --features seeded-faults --test conformance_self_test -- --nocapture
	$(as_namespace_root) cargo test --package midspan --features seeded-faults --test real_clients_self_test

# Programs that are not installed are skipped by name (docs/real-clients.md).
real-clients: build
	@scripts/install-dependencies real-clients
	cargo build --release --package midspan-real-clients
	target/release/real-clients

# Needs cargo-deb: `cargo install cargo-deb --locked --version 3.8.0`, in `make deb` if it is missing.
deb:
	@scripts/install-dependencies deb
	packaging/build

package-test: deb
	@scripts/install-dependencies package-test
	packaging/build-old
	packaging/test

arm64: deb
	@scripts/install-dependencies arm64
	packaging/arm64

image: deb
	@scripts/install-dependencies image
	packaging/image

# Packages, bill of materials, source and checksums, from a commit; `make test` and `make package-test` are
# not part of it.
release: lint
	@scripts/install-dependencies release
	@scripts/install-dependencies arm64
	cargo deny --log-level error check bans licenses sources
	packaging/release

# Debian 12 and 13 with their kernels, emulated. The tests of a call end after MINUTES; the next call
# continues. Status 75: not all is done yet.
MINUTES ?= 40

test-vm: deb
	@scripts/install-dependencies machines
	packaging/build-old
	cargo run --quiet --package midspan-machines -- --minutes $(MINUTES) $(if $(RECORD),--record $(RECORD))

# For example: make fuzz TARGETS="pcap ss" RUNS=1000000 SECONDS=60
TARGETS ?=
RUNS ?= 10000000
SECONDS ?= 1200
fuzzing := cargo run --quiet --package midspan-fuzzed --bin fuzzing --

fuzz: dependencies
	$(fuzzing) run --runs $(RUNS) --seconds $(SECONDS) $(TARGETS)

fuzz-coverage: dependencies
	$(fuzzing) coverage $(TARGETS)

fuzz-self-test: dependencies
	$(fuzzing) self-test --runs $(RUNS) --seconds 300 $(TARGETS)

docs:
	cargo doc --workspace --no-deps

# Newer versions may make other pages, so the version is fixed. An mdBook of this version on the PATH is used.
MDBOOK_VERSION := 0.5.4

site:
	@export PATH="$(CURDIR)/target/mdbook/bin:$$PATH"; \
	case "$$(mdbook --version 2>/dev/null)" in \
		*v$(MDBOOK_VERSION)) ;; \
		*) cargo install mdbook --locked --version $(MDBOOK_VERSION) --no-default-features --features search \
			--root target/mdbook ;; \
	esac && mdbook build && echo "the site is in target/site: open target/site/index.html"

clean:
	cargo clean
