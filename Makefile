# Midspan's tasks. `make demo` is the first thing to try; CONTRIBUTING.md explains the rest.

export PATH := $(HOME)/.cargo/bin:$(PATH)

# Tests need a user that may make network namespaces: root, or root of a user namespace.
as_namespace_root := $(if $(filter 0,$(shell id -u)),,unshare --user --map-root-user)

.PHONY: help dependencies build demo test lint bench verify docs clean

help:
	@echo "make demo    install what is missing, build, show a download over a bad path with and without Midspan"
	@echo "make test    run all tests (under 30 minutes)"
	@echo "make lint    check format, lints and documentation links"
	@echo "make verify  measure the emulated links against independent clocks (midspan lab verify)"
	@echo "make bench   measure Midspan beside HAProxy and plain routing; the I/O loops"
	@echo "make docs    build the API documentation into target/doc"

dependencies:
	@scripts/install-dependencies

build: dependencies
	cargo build --release --package midspan

demo: build
	target/release/midspan demo

test: dependencies
	$(as_namespace_root) cargo test --workspace

lint: dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	scripts/check-text

bench: build
	target/release/midspan lab geo --cases direct,haproxy,midspan --repetitions 3
	target/release/midspan lab geo-clean --cases direct,haproxy,midspan --repetitions 3
	cargo run --release --package relay-shell

verify: build
	target/release/midspan lab verify

docs:
	cargo doc --workspace --no-deps

clean:
	cargo clean
