# Every target makes the environment that it needs first: Python 3.11 or newer and make are enough to begin with.
.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

# The environment's tools come first, its Node (which the CDK needs) among them.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PORT

T ?= tests# what `make test` runs: a folder, a file or a test
A ?=# more arguments for pytest

.PHONY: help
help: ## List the targets
	@echo "usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-24s %s\n", $$1, $$2 }' Makefile

.PHONY: run-env dev-env
run-env:
	@scripts/bootstrap.sh run
dev-env:
	@scripts/bootstrap.sh dev

.PHONY: run
run: run-env ## Run the control plane on this machine (PORT=8080 chooses the port)
	@exec .venv/bin/python -m differently_local

.PHONY: test
test: dev-env ## Run the tests (T=tests/unit for a part, A=-x for more arguments)
	@for part in $(T); do [ -e "$${part%%::*}" ] || { echo "there is no $$part" >&2; exit 1; }; done
	@.venv/bin/pytest -n 2 --dist worksteal $(T) $(A)

.PHONY: fmt
fmt: dev-env ## Format the code and mend what the linter can mend
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format .

.PHONY: lint
lint: dev-env ## Check format and lint rules
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .

.PHONY: types
types: dev-env ## Check the types
	@.venv/bin/mypy

.PHONY: imports
imports: dev-env ## Check that imports go one way
	@.venv/bin/lint-imports

.PHONY: layers
layers: dev-env ## Make the code that is deployed, in dist/lambda
	@.venv/bin/python -m differently_infra.packaging

.PHONY: synth
synth: layers ## Synthesize each shipped configuration under the security rules, and check the shipped template
	@.venv/bin/python -m differently_infra.check cdk.out
	@.venv/bin/python -m differently_infra.local_template --check

.PHONY: cdk-env
cdk-env: dev-env
	@scripts/bootstrap.sh cdk

CDK := infra/cli/node_modules/.bin/cdk

.PHONY: price
price: dev-env ## What this configuration costs in a month without use
	@.venv/bin/python -m differently_infra.price

.PHONY: cloud-bootstrap
cloud-bootstrap: layers cdk-env ## Prepare an AWS account and Region for deployments, once
	@$(CDK) bootstrap --no-notices

.PHONY: preflight
preflight: dev-env ## Tell what would make a deployment fail, and what to do about it; changes nothing
	@.venv/bin/python -m differently_infra.preflight

.PHONY: deploy
deploy: layers cdk-env ## Deploy or update every stack in the AWS account of your credentials
	@$(CDK) deploy --all --no-notices
	@.venv/bin/python -m differently_infra.admin apply

.PHONY: drift
drift: dev-env ## Tell where pools, templates, policies and quotas are not what deployment.toml declares
	@.venv/bin/python -m differently_infra.admin diff

.PHONY: destroy
destroy: layers cdk-env ## Destroy the stacks; tables and keys stay unless keepData is off
	@$(CDK) destroy --all --no-notices

.PHONY: first-key
first-key: dev-env ## Print the first operator key of what is deployed, once
	@.venv/bin/python -m differently_infra.admin bootstrap

.PHONY: api-url
api-url: dev-env ## Print where the deployed API is
	@.venv/bin/python -m differently_infra.admin url

.PHONY: release
release: layers ## Make a release of the tag that is checked out: wheels, code, templates, bill of materials, checksums
	@.venv/bin/python -m differently_infra.release

.PHONY: test-live
test-live: dev-env ## Try a deployed installation: DIFFERENTLY_LIVE_URL and DIFFERENTLY_LIVE_KEY say which
	@.venv/bin/pytest -m live -rs tests/live $(A)

.PHONY: rehearse
rehearse: layers cdk-env ## Deploy to an emulator on this machine, use it, update it, destroy it
	@.venv/bin/pytest -m e2e --timeout 400 tests/rehearsal $(A)

.PHONY: template
template: dev-env ## Rewrite the template that `make run` gives its embedded AWS
	@.venv/bin/python -m differently_infra.local_template

.PHONY: docs
docs: dev-env ## Run every command and snippet of the documentation
	@$(MAKE) test T=tests/docs

.PHONY: sim
sim: dev-env ## Run the simulation of the control plane under faults
	@$(MAKE) test T=tests/simulation

.PHONY: prove
prove: dev-env ## Run every search at its full size (hours): fuzzing, histories, interleavings, simulation, soak
	@DIFFERENTLY_PROVE=1 .venv/bin/pytest --timeout 7200 tests/integration/api/test_fuzz.py tests/integration/api/test_fuzz_states.py $(A)
	@DIFFERENTLY_PROVE=1 .venv/bin/pytest --timeout 600 tests/histories tests/simulation/test_interleavings.py $(A)
	@.venv/bin/python -m tests.simulation.past_faults
	@.venv/bin/python -m tests.simulation.mutants
	@.venv/bin/python -m tests.simulation.soak --recovery
	@.venv/bin/python -m tests.simulation.soak
	@.venv/bin/python -m tests.simulation --seeds 1-1000 --steps 100000 --processes 2

.PHONY: test-sdks
test-sdks: dev-env ## Run vendors' own clients against our stand-ins of their services
	@scripts/bootstrap.sh sdks
	@$(MAKE) test T=tests/sdks

.PHONY: test-opensandbox-server
test-opensandbox-server: dev-env ## Run the OpenSandbox adapter against the released OpenSandbox server
	@scripts/bootstrap.sh servers
	@$(MAKE) test T=tests/servers

.PHONY: lock
lock: ## Write the locks anew (UPGRADE=1 takes the newest releases)
	@scripts/bootstrap.sh tools
	@scripts/lock.sh

.PHONY: verify
verify: dev-env ## Everything that must hold before a change lands
	@$(MAKE) lint
	@$(MAKE) types
	@$(MAKE) imports
	@$(MAKE) synth
	@$(MAKE) docs
	@$(MAKE) test A=--ignore=tests/docs

.PHONY: clean
clean: ## Remove environments, caches and build output (not .differently, which holds your data)
	@rm -rf .venv .venv-daytona .venv-emulator .venv-e2b .venv-opensandbox .venv-opensandbox-server .venv-tools cdk.out dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
