# Everything that a person types here. Each target does its own set-up.
# The tools and the model are checked first; what is missing is said in one line each.

.DEFAULT_GOAL := help
.PHONY: help setup build wheel run generate chat test test-long accuracy encrypted encrypted-one verify-one calibration decoder decoder-one decoder-model bench networks check secrets doc peers fuzz audit static image man book publish-check page-test wheel-manylinux test-pythons test-ray test-aarch64 clean
SHELL := /bin/sh
# The question of `make run` and the prompt of `make generate` reach the scripts as they are, whatever characters they have.
export QUERY
export PROMPT
export TOKENS

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## check the tools and fetch what is needed, once; everything works offline afterwards
	@scripts/setup.sh
	@scripts/fetch_model.sh >/dev/null
	@scripts/fetch_python.sh
	@scripts/fetch_gpu.sh

build: setup ## build the `hushed` command
	@cargo build --release --locked -p hushed-cli

wheel: setup ## build the Python package, wheel and source, in dist/
	@cargo xtask wheel

wheel-manylinux: setup ## build the wheel for older Linux systems in dist/ (needs the network once: zig comes from PyPI)
	@scripts/manylinux_wheel.sh

publish-check: setup ## package every crate as for crates.io and build it from its package, without publishing
	cargo publish --workspace --dry-run --locked

static: setup ## build a static `hushed-server` in dist/ and try it in an empty root (deploy/)
	@scripts/static_server.sh

image: static ## build the container's image from it and serve a tiny model there (needs podman)
	@scripts/image.sh

man: build ## write the manual pages in dist/man
	@"$${CARGO_TARGET_DIR:-target}/release/hushed" man dist/man

run: build ## try it: a private search on this machine; QUERY="…" asks your own question
	@python3 scripts/demo.py

generate: build ## continue a private text with a small GPT-2; PROMPT="…" is your own beginning, TOKENS=16
	@python3 scripts/generate.py

chat: build ## a private chat in the terminal with SmolLM2-135M-Instruct, fetched once (93 MB); TOKENS=48 for an answer
	@python3 scripts/chat.py

test: setup ## run every check and every test (most of the time is compiling)
	@HUSHED_MODEL_DIR="$$(scripts/fetch_model.sh)" cargo xtask test

test-long: ## the same with the long tests at full length, and the server built alone
	@HUSHED_LONG_TESTS=1 $(MAKE) --no-print-directory test

test-aarch64: setup ## build for aarch64 and test the arithmetic and keys in an emulator (needs qemu-user and a cross compiler)
	@scripts/test_aarch64.sh

test-pythons: setup ## test the Python package on Python 3.9 and 3.13 as well, where they are installed
	@scripts/other_pythons.sh

test-ray: setup ## run a tiny model on two workers of a Ray cluster on this machine, and what may become of them (fetches Ray once)
	@scripts/test_ray.sh

accuracy: build ## how close private answers are to clear ones: sentences, tokens, digits (long); PART=tokens does one
	@python3 scripts/accuracy.py $$PART

encrypted: build ## try `fhe`: one layer of the real model under encryption, a quarter of an hour (LAYERS, ROWS change it)
	@python3 scripts/encrypted_run.py --layers "$${LAYERS:-1}" --rows "$${ROWS:-32}"

encrypted-one: build ## try `fhe` on one text alone: minutes, and 5 GiB of keys made once; QUERY="…" asks your own question
	@python3 scripts/encrypted_one.py

verify-one: build ## simulate one text alone on a hundred unseen texts (half an hour)
	@python3 scripts/verify_one.py

calibration: build ## make the shipped calibration of `fhe` again (minutes)
	@"$${CARGO_TARGET_DIR:-target}/release/hushed" calibrate --force "$$(scripts/fetch_model.sh)" --protocol fhe \
		--input data/calibration.txt --hostile data/calibration-hostile.txt --truncate --unseen data/unseen.txt --output data/calibration-fhe-minilm.json

decoder: build ## try `fhe` on a small decoder: 252 private texts in half an hour, with 17 GiB of memory
	@python3 scripts/encrypted_decoder.py

decoder-one: build ## try `fhe` on one prompt alone through that decoder: minutes, and 5 GiB of keys made once; PROMPT="…" is your own
	@python3 scripts/decoder_one.py

decoder-model: build ## train the small decoder of `fhe` again, an hour of processor time (MINUTES changes it), in data/decoder-small
	@python3 -m venv out/decoder-venv
	@out/decoder-venv/bin/pip install --quiet jax==0.10.2 jaxlib==0.10.2 tokenizers==0.23.3 numpy==2.4.6
	@scripts/fetch_texts.sh out/decoder-texts
	@out/decoder-venv/bin/python scripts/make_decoder.py data/decoder-small --texts out/decoder-texts --minutes "$${MINUTES:-60}"
	@"$${CARGO_TARGET_DIR:-target}/release/hushed" calibrate --force data/decoder-small --protocol fhe --input data/decoder-small/sample.txt \
		--truncate --output data/decoder-small/calibration-fhe.json
	@"$${CARGO_TARGET_DIR:-target}/release/hushed" calibrate --force data/decoder-small --input data/decoder-small/sample.txt \
		--truncate --declare --output out/decoder-calibration.json
	@cd data/decoder-small && sha256sum *.json *.jsonl *.safetensors *.txt >SHA256SUMS

bench: setup ## measure everything, in the profile of releases; rows in out/bench.jsonl (hours)
	@cargo build --profile dist --locked -p hushed-bench
	@mkdir -p out && : >out/bench.jsonl
	@for run in "all loopback" "layer lan" "model lan" "layer wan" "model wan"; do \
		set -- $$run; \
		"$${CARGO_TARGET_DIR:-target}/dist/hushed-bench" "$$1" --net "$$2" --json | tee -a out/bench.jsonl || exit 1; \
	done
	@python3 scripts/bench_report.py out/bench.jsonl

networks: setup ## measure over networks of 10 to 80 ms and 20 to 200 Mbit/s; rows in out/networks.jsonl (20 minutes)
	@cargo build --profile dist --locked -p hushed-bench
	@mkdir -p out
	@python3 scripts/networks.py "$${CARGO_TARGET_DIR:-target}/dist/hushed-bench" out/networks.jsonl

check: ## check the code without running it: format, imports, licences, clippy
	@scripts/setup.sh
	@cargo xtask check

secrets: ## check that no secret decides time, a branch or an address (needs valgrind; minutes)
	@scripts/setup.sh
	@command -v valgrind >/dev/null || { echo "secrets: valgrind is missing. On Debian: apt-get install valgrind" >&2; exit 1; }
	@cargo xtask secrets --watch

doc: ## build the documentation of the code in target/doc
	RUSTDOCFLAGS="-D rustdoc::broken_intra_doc_links" cargo doc --workspace --no-deps --locked --document-private-items

book: ## make a book of the documents in target/book, links checked (needs mdbook)
	@python3 scripts/book.py

page-test: build ## use the gateway's page in a headless browser (needs chromium)
	@python3 scripts/page_test.py

peers: ## measure other libraries beside ours (benches/peers)
	@scripts/setup.sh
	@benches/peers/run.sh

fuzz: ## fuzz every decoder for a minute (needs nightly Rust and cargo-fuzz)
	@fuzz/run.sh

audit: ## look for known vulnerabilities in dependencies (needs the network)
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check advisories; \
	elif cargo audit --version >/dev/null 2>&1; then cargo audit; \
	else echo "audit: neither cargo-deny nor cargo-audit is installed. Run: cargo install --locked cargo-deny" >&2; exit 1; fi

clean: ## remove what was built; keep the model
	@cargo clean
