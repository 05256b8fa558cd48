# One environment for the agent, never the one it serves from. `make run` and `make test` need nothing else.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SCRATCH ?= .run/reference-campaign
export PIP_DISABLE_PIP_VERSION_CHECK = 1

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

env: $(VENV)/.ready ## the environment, with locked dependencies

$(VENV)/.ready: pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "optagent needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "making $(VENV) from requirements-dev.lock (a minute the first time)"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock && \
	  $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . ; \
	fi
	@touch $@

run: env ## the reference campaign on the simulated deployment, in a scratch folder
	@rm -rf $(SCRATCH) && mkdir -p $(SCRATCH)
	@cp -R optagent.toml plans handoffs $(SCRATCH)/
	@$(BIN)/optagent -C $(SCRATCH) continue; status=$$?; \
	if [ $$status -eq 3 ]; then \
	  echo "(the campaign lies in $(SCRATCH): $(BIN)/optagent -C $(SCRATCH) answer Q1 approve)"; \
	elif [ $$status -ne 0 ]; then exit $$status; fi

test: env ## all tests that need no real SGLang, but for the long ones of test-chaos
	@$(BIN)/python -m pytest -m "not sglang and not chaos"

test-chaos: env ## a whole campaign, killed at every place where it records or acts, and at random times
	@$(BIN)/python -m pytest -m "chaos and not sglang" tests/chaos

test-sglang: env ## the end-to-end tests on the SGLang that `make sglang-cpu` built
	@$(BIN)/python -m pytest -m "sglang and not chaos" -rs --durations=0 --durations-min=5 tests/sglang_cpu

sglang-campaign: env ## the whole small campaign on that SGLang, in a scratch folder (half an hour)
	@$(BIN)/python tests/sglang_cpu/run_campaign.py .run/sglang-campaign

check: env ## format, lint and types, as in CI
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: env ## put the code in shape
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

benchmarks: env ## start-up times as ratios
	@$(BIN)/python tests/benchmarks/startup.py

campaign-benchmark: env ## whole campaigns beside four other ways to search (long)
	@$(BIN)/python tests/benchmarks/campaigns/run.py

verdict-benchmark: env ## how often verdicts are wrong, and what they cost (long)
	@$(BIN)/python tests/benchmarks/verdicts.py

sglang-cpu: ## a real SGLang on the CPU, for the end-to-end tests (3.2 GB)
	@$(PYTHON) tests/sglang_cpu/build.py

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate pyproject.toml

lock: ## write the lock files anew (needs uv)
	$(LOCK) -o requirements.lock
	$(LOCK) --group dev -c requirements.lock -o requirements-dev.lock

clean: ## remove everything that was made here
	rm -rf $(VENV) .run .mypy_cache .ruff_cache .pytest_cache .hypothesis build src/*.egg-info

.PHONY: help env run test test-chaos test-sglang check format benchmarks campaign-benchmark verdict-benchmark sglang-cpu sglang-campaign lock clean
