# `make` lists the targets. PYTHON=... uses an interpreter that has torch, as it is; otherwise .venv is made.
# PRESET=cpu leaves the CUDA kernels out; any preset of CMakePresets.json will do.
export PYTHON PRESET

.PHONY: help setup build demo test lint format bench-tables clean
help:            ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup:           ## Python environment (.venv), build tools, system libraries
	@tools/setup.sh

build: setup     ## compile the operator libraries (CUDA too where nvcc is present)
	@tools/build.sh

demo: build      ## fine-tune SmolLM2-135M (about ten minutes in all), answers before and after, eager beside Tigon
	@tools/demo.sh

test: build      ## format, lint, types, then every C++ and Python test (GPU tests where there is a GPU)
	@tools/test.sh

lint: build      ## the checks of `make test` alone
	@tools/lint.sh

format: setup    ## rewrite the sources as clang-format and ruff want them
	@tools/lint.sh --fix

bench-tables:    ## write README's measured tables and pictures again, from bench/results
	@$${PYTHON:-.venv/bin/python} tools/bench_tables.py

clean:           ## remove build folder and compiled libraries (.venv stays)
	rm -rf build python/tigon/_lib
