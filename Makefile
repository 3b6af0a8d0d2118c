# Everything that a person types here. Each target does its own set-up.
# The tools and the model are checked first; what is missing is said in one line each.

.DEFAULT_GOAL := help
.PHONY: help setup build run test accuracy encrypted calibration bench check secrets doc peers fuzz audit clean
SHELL := /bin/sh
# The question of `make run` reaches the script as it is, whatever characters it has.
export QUERY

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## check the tools, fetch the crates and the model (once; offline afterwards)
	@scripts/setup.sh
	@scripts/fetch_model.sh >/dev/null

build: setup ## the release binary
	@cargo build --release --locked -p hushed-cli

run: build ## a private semantic search between two processes; QUERY="…" asks another question
	@python3 scripts/demo.py

test: setup ## every check and every test; the last line counts them
	@HUSHED_MODEL_DIR="$$(scripts/fetch_model.sh)" cargo xtask test

accuracy: build ## private against clear embeddings over data/sample.txt (long)
	@python3 scripts/accuracy.py

encrypted: build ## LAYERS (1) layers of the real model under encryption at 128 bits, ROWS (32) rows a text, beside the clear (a quarter of an hour and more)
	@python3 scripts/encrypted_run.py --layers "$${LAYERS:-1}" --rows "$${ROWS:-32}"

calibration: build ## data/calibration-fhe-minilm.json again, from the texts beside it (minutes)
	@"$${CARGO_TARGET_DIR:-target}/release/hushed" calibrate "$$(scripts/fetch_model.sh)" --protocol fhe \
		--input data/calibration.txt --hostile data/calibration-hostile.txt --truncate --unseen data/unseen.txt --output data/calibration-fhe-minilm.json

bench: setup ## every measurement on loopback, models on LAN and WAN too; rows in out/bench.jsonl (long)
	@cargo build --release --locked -p hushed-bench
	@mkdir -p out && : >out/bench.jsonl
	@for run in "all loopback" "layer lan" "model lan" "layer wan" "model wan"; do \
		set -- $$run; \
		"$${CARGO_TARGET_DIR:-target}/release/hushed-bench" "$$1" --net "$$2" --json | tee -a out/bench.jsonl || exit 1; \
	done
	@python3 scripts/bench_report.py out/bench.jsonl

check: ## formatting, file sizes, unsafe code, imports, licences, clippy
	@scripts/setup.sh
	@cargo xtask check

secrets: ## do secrets decide time, branches or addresses? the release build timed, disassembled and under valgrind (minutes)
	@scripts/setup.sh
	@command -v valgrind >/dev/null || { echo "secrets: valgrind is missing. On Debian: apt-get install valgrind" >&2; exit 1; }
	@cargo xtask secrets --watch

doc: ## the pages of every crate, private items among them, in target/doc; fails at a link that leads nowhere
	RUSTDOCFLAGS="-D rustdoc::broken_intra_doc_links" cargo doc --workspace --no-deps --locked --document-private-items

peers: ## ours and other people's programs by turns on the same cores (benches/peers); SPU takes a Python environment of its own
	@scripts/setup.sh
	@benches/peers/run.sh

fuzz: ## every decoder under cargo-fuzz, a minute each (needs nightly Rust and cargo-fuzz)
	@fuzz/run.sh

audit: ## known vulnerabilities in what we link (needs the network)
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check advisories; \
	elif cargo audit --version >/dev/null 2>&1; then cargo audit; \
	else echo "audit: neither cargo-deny nor cargo-audit is installed. Run: cargo install --locked cargo-deny" >&2; exit 1; fi

clean: ## remove what was built; the model stays
	@cargo clean
