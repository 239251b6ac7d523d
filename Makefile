.DEFAULT_GOAL := help
.PHONY: help setup demo lint test test-all test-long suite conformance mutants matrix image kubernetes engines accept bench

# bin/setup links .tools/java when the Java that Spark would take by itself is missing or too old.
java := test ! -x .tools/java/bin/java || export JAVA_HOME="$$PWD/.tools/java";
ARGS ?=
MARKS ?=
# Three at a time, since the slow ones wait much; each has a Spark of its own. A file's tests stay together, for they
# share what is slow.
WORKERS ?= 3
pytest = .venv/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10
EXIT ?=

##@ Use

demo: setup ## Replay February 2013 of real flights in a real Airflow (EXIT=1: end by itself)
	@$(java) BACKSTREAM_DEMO_EXIT=$(EXIT) .venv/bin/python -m demo

bench: setup ## Measure, and print one table of ratios
	@$(java) .venv/bin/python -m benchmarks $(ARGS)

##@ Develop

lint: setup ## Style, format, types and layers
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

test: ## The tests that take seconds, lint beside them (ARGS="-k word" is handed to pytest)
	@$(MAKE) --no-print-directory --jobs 2 lint suite MARKS="not e2e and not slow and not long and not engines and not image"

test-all: ## Each kind of test, and lint (ARGS="-m e2e": those with Airflow, clusters, browsers)
	@$(MAKE) --no-print-directory --jobs 2 lint suite MARKS="not long and not image"

test-long: ## What repeats a test with other seeds, forms, or stories (ARGS="tests/e2e")
	@$(MAKE) --no-print-directory suite MARKS=long

suite: setup
	@$(java) .venv/bin/python -m tests.class_archive
	@$(java) $(pytest) -m "$(MARKS)" $(ARGS)

conformance: setup ## All recordings of Flink on the path of a run (ARGS="--engine spark": on Spark)
	@$(java) .venv/bin/backstream conformance tests/conformance/flink/*.jsonl --engine native $(ARGS)

mutants: setup ## Changes of the code that a recording of Flink must notice (ARGS="sessions")
	@$(java) .venv/bin/python -m tests.conformance.mutants $(ARGS)

matrix: setup ## Publish by the wheel with each Python and Airflow (ARGS="--airflow 3.2 --spark 4.0")
	@$(java) .venv/bin/python -m tests.package.matrix $(ARGS)

image: ## Build the image by docker or buildah, and run it
	@$(MAKE) --no-print-directory suite MARKS=image WORKERS=0 ARGS=tests/package/test_image.py

kubernetes: setup ## Publish on a real Kubernetes, with faults; Go builds it once (ARGS="-k retry")
	@$(java) .venv/bin/python -m tests.kubernetes.build
	@$(java) KUBERNETES_TESTS=yes .venv/bin/pytest tests/kubernetes --durations 10 $(ARGS)

engines: setup ## Read, maintain, and write published tables with real engines, and print a matrix
	@$(java) .venv/bin/python -m tests.engines.parts
	@$(MAKE) --no-print-directory suite MARKS=engines WORKERS=0 ARGS="tests/engines $(ARGS)"

accept: setup ## Write what is computed from the code again: names, digests, counts, the reference
	@.venv/bin/python -m tests.house.accept

##@ Prepare

setup: ## A Java runtime, uv and the locked environment; the others call it first
	@bin/setup

help: ## This list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
