# warmgraph: `make demo` shows it, `make test` proves it. Both set up what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
SETUP_STAMP := $(VENV)/.setup-stamp
SOURCES := api operator activator sidecar engine devcluster images demo benchmarks

# A cluster of your own instead of the local one: make demo KUBECONFIG=~/.kube/config \
#   CONTROL_PLANE_IMAGE=… ENGINE_IMAGE=… DEMO_MODEL_IMAGE=…
KUBECONFIG ?=
CONTROL_PLANE_IMAGE ?=
ENGINE_IMAGE ?=
DEMO_MODEL_IMAGE ?=
export CONTROL_PLANE_IMAGE ENGINE_IMAGE DEMO_MODEL_IMAGE
ifneq ($(KUBECONFIG),)
export KUBECONFIG
endif

# What to run of the tests, for example: make test-only T=tests/operator
T ?= tests

.PHONY: help setup fmt lint verify test test-unit test-gpu test-only cluster images demo demo-down \
	cluster-down bench constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the two that matter --------------------------------------------------------------------

demo: setup ## Install everything that is missing, then show the whole life of a deployment
	@$(PY) -m demo run

test: lint verify cluster images ## Set up everything, then run every test that can run here
	@$(PY) -m pytest

# --- their parts ----------------------------------------------------------------------------

setup: $(SETUP_STAMP) ## Python environment in .venv

$(SETUP_STAMP): pyproject.toml constraints.txt
	@echo "setup: Python environment in $(VENV) (a few minutes the first time)"
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "warmgraph needs Python 3.11 or newer")'
	@python3 -m venv $(VENV) 2>/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null && python3 -m venv $(VENV); }
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@$(VENV)/bin/uv pip install --quiet --python $(PY) --compile-bytecode \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

lint: setup ## Style, types and layers
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy $(wildcard $(SOURCES))
	@$(VENV)/bin/lint-imports

fmt: setup ## Format the code
	@$(VENV)/bin/ruff check --fix --quiet . ; $(VENV)/bin/ruff format .

verify: setup ## Generated files have not drifted from their sources
	@$(PY) -m warmgraph_api.crd --check
	@$(PY) -m images lock --check
	@$(PY) -m benchmarks.report --check

test-unit: setup ## Tests that need no cluster
	@$(PY) -m pytest -m 'not apiserver and not cluster and not gpu'

test-gpu: setup ## Tests of the CUDA backend, on a machine with a GPU
	@$(PY) -m pytest tests/gpu

test-only: setup ## Some tests: make test-only T=tests/operator
	@$(PY) -m pytest $(T)

cluster: setup ## The local Kubernetes, built once (10 to 15 minutes on 2 cores) and started
ifeq ($(KUBECONFIG),)
	@$(PY) -m devcluster up
endif

images: cluster ## The images, built and loaded into the local cluster
ifeq ($(KUBECONFIG),)
	@$(PY) -m images build --load
endif

cluster-down: setup ## Stop the local Kubernetes and remove its data; built programs stay cached
	@$(PY) -m devcluster down

demo-down: setup ## Remove the local cluster; with KUBECONFIG, what the demo made on that one
	@$(PY) -m demo down

bench: setup ## Decoding on the CPU, against transformers and with drafts; writes docs/benchmarks
	@$(PY) -m benchmarks.cpu_decode --model "$$($(PY) demo/fetch_model.py)"
	@$(PY) -m benchmarks.speculative --model "$$($(PY) demo/fetch_model.py)"
	@$(PY) -m benchmarks.report

constraints: setup ## Pin the versions that are installed now
	@{ sed -n '/^#/p' constraints.txt; $(VENV)/bin/uv pip freeze --python $(PY) \
		| grep -v -e '^-e' -e ' @ '; } > constraints.tmp && mv constraints.tmp constraints.txt

clean: ## Remove what this folder's commands made in this folder
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
