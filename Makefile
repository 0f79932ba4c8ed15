# `make help` lists what there is. Only python3 >= 3.11 with venv and pip must be there before.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SEED   ?= 1
SEEDS  ?= 200
SCENARIO ?= basic

.DEFAULT_GOAL := help
.PHONY: help setup browser cast screenshots trial record-metrics fmt lint types imports test test-long test-cluster test-controllers test-kueue test-beside-kueue contracts conformance classification simulate mutants faults demo dev docs audit release ci bench bench-engine bench-webhook bench-bus bench-console bench-whatif bench-startup bench-restart bench-days bench-rest bench-cluster bench-latency bench-pods bench-spokes attack fuzz clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2}'

setup: $(STAMP) ## Install everything into .venv (quick when nothing changed)

$(STAMP): pyproject.toml uv.lock
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
	@UV_PROJECT_ENVIRONMENT=$(VENV) $(RUN)/uv sync --locked --quiet --inexact --compile-bytecode
	@touch $@

browser: ## Install what the tests of the console's page need: Debian's Chromium, and axe-core from npm
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	  || (apt-get update --quiet && apt-get install --yes --quiet chromium) \
	  || echo "install Chromium by hand: without it the tests of the page are skipped"
	@command -v npm >/dev/null || apt-get install --yes --quiet npm || echo "install npm by hand: axe-core needs it"
	@npm ci --silent --prefix tests/integration/page || echo "npm did not install axe-core: its test is skipped"

screenshots: setup ## Take the pictures of the console's pages again: docs/images/console-*.png
	$(RUN)/python -m tests.integration.page.screenshots

fmt: setup ## Format the code and apply automatic fixes
	$(RUN)/ruff format services shared tests
	$(RUN)/ruff check --fix services shared tests

cast: setup ## Record the demo's output again: docs/images/demo.svg and demo.cast, of one real run
	$(RUN)/python -m tests.integration.page.cast

PROSE = README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs/*.md docs/adr docs/explanation docs/how-to docs/runbooks docs/tutorial

lint: setup ## Check style, spelling and prose
	$(RUN)/ruff format --check services shared tests
	$(RUN)/ruff check services shared tests
	$(RUN)/codespell --dictionary=- --dictionary=docs/words.txt $(PROSE) docs/reference services shared deploy
	$(RUN)/proselint --config .proselintrc.json check -o compact $(PROSE)

types: setup ## Check types, strictly, sources and tests
	$(RUN)/mypy

imports: setup ## Check that imports flow downwards
	$(RUN)/lint-imports

test: setup ## Run the tests; needs nothing but Python
	$(RUN)/pytest

test-long: setup ## Run the long worlds that `make test` leaves out (TENTH=7: a tenth of them, as CI does)
	$(RUN)/pytest -m long tests/attacks tests/simulation $(if $(TENTH),--tenth $(TENTH))

test-cluster: setup ## Run the cluster suite: KUBEBUILDER_ASSETS=folder, or Docker
	$(RUN)/pytest -n 0 -m cluster tests/contract/kubernetes tests/contract/deploy tests/e2e

test-controllers: setup ## Run beside real controllers: KUBEBUILDER_ASSETS, CONTROLLERS, TEKTON, KUEUE (docs/how-to/measure.md; ONLY='deleted')
	$(RUN)/python -m tests.controllers '$(ONLY)'

test-kueue: setup ## Build and run Kueue's suites in a tree of Kueue (KUEUE=tree, KUBEBUILDER_ASSETS=folder, RECORD=1)
	$(RUN)/python -m tests.kueue $(KUEUE) $(if $(RECORD),--record)

test-beside-kueue: setup ## Run beside real Kueue managers (KUEUE=tree, KUEUE_MANAGER=program, KUBEBUILDER_ASSETS=folder)
	KUEUE=$(KUEUE) $(RUN)/pytest -n 0 -m kueue tests/kueue/beside

demo: setup ## Run the whole system, show its work and check the result (SEED=1 SPOKES=3)
	$(RUN)/sluice demo --seed $(SEED) $(if $(SPOKES),--spokes $(SPOKES))

dev: setup ## Start everything on this machine and leave it running
	$(RUN)/sluice dev

conformance: setup ## Compare the quota engine with Kueue (CORPUS=folder)
	$(RUN)/python -m tests.conformance.quota $(CORPUS)

classification: setup ## Compare classification with tekton-kueue (CASES=file CONFIG=folder, or CASES=file CEL=1)
	$(RUN)/python -m tests.conformance.classification --cases $(CASES) $(if $(CONFIG),--config $(CONFIG)) $(if $(CEL),--cel)

simulate: setup ## Run all services in seeded worlds (SCENARIO=basic SEEDS=200 SEED=1, the first; goes on where it ended)
	$(RUN)/sluice simulate-world --scenario $(SCENARIO) --first-seed $(SEED) --seeds $(SEEDS)

attack: setup ## Attack a real NATS server with the deployed users and TLS (ONLY='viewer purges'; KUBEBUILDER_ASSETS=folder: a real API server, too)
	$(RUN)/python -m tests.attacks $(ONLY)

fuzz: setup ## Give every parser input that is nearly right (EXAMPLES=100000 ONLY='kubeconfig' SEED=1)
	SEED=$(SEED) $(RUN)/python -m tests.fuzz $(or $(EXAMPLES),100000) $(ONLY)

mutants: setup ## Take one safety mechanism out at a time; every one must be missed (WORD='part of a name' SECONDS=600, TURN=3: a twelfth)
	$(RUN)/python -m services.simulator.mutants $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TURN),--turns 12 --turn $(TURN)) $(WORD)

faults: setup ## Break a system of real processes and servers; every fault must be survived (FAULTS=40 ONLY='quota is' SEED=1)
	FAULTS=$(FAULTS) SEED=$(SEED) $(RUN)/python -m tests.faults '$(ONLY)'

bench: setup ## Run all benchmarks, print one table, write dist/bench.json (COMPARE=file of an earlier run, ONLY="rest bus")
	$(RUN)/python -m services.ctl.bench.suite $(if $(COMPARE),--compare $(COMPARE)) $(if $(ONLY),--only $(ONLY))

bench-engine: setup ## Measure the engine: admissions per CPU second, peak MiB
	$(RUN)/python -m services.quota.bench

bench-webhook: setup ## Measure the webhook: p50, p99 at 200 reviews a second (ATTACK=1: while one tenant attacks)
	$(RUN)/python -m services.classifier.bench $(if $(ATTACK),--attack)

bench-cluster: setup ## Replay Kueue's load against the simulator (LOAD=baseline SCALE=0.1)
	$(RUN)/python -m services.ctl.bench_cluster --load $(or $(LOAD),baseline) --scale $(or $(SCALE),0.1)

bench-latency: setup ## Measure how long a Job waits although quota is free: 100 a second (MINUTES=5)
	$(RUN)/python -m services.ctl.bench.latency --minutes $(or $(MINUTES),5)

bench-pods: setup ## Measure a group of pods: from the last one until all are let go (PODS=500 KUBECONFIG=file)
	$(RUN)/python -m services.ctl.bench.pods --pods $(or $(PODS),500) $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG))

bench-spokes: setup ## Measure a burst over spokes: 1,000 workloads over 5, by BestFit and by AllAtOnce
	$(RUN)/python -m services.simulator.bench.spokes

bench-bus: setup ## Measure the bus: publishes and reads a second (USERS=1: with users and accounts, as deployed)
	$(RUN)/python -m shared.bus.bench $(if $(USERS),--users)

bench-whatif: setup ## Measure what-if: a day of 50,000 workloads against less quota
	$(RUN)/python -m services.ctl.bench.whatif

bench-restart: setup ## Measure a start after history: 1,000,000 ended, 50,000 waiting, 5,000 running (SCALE=0.1)
	$(RUN)/python -m services.ctl.bench_restart --scale $(or $(SCALE),1)

bench-days: setup ## Measure what each service keeps while days pass, in virtual time (DAYS=90 A_DAY=200)
	$(RUN)/python -m tests.days --days $(or $(DAYS),90) --workloads $(or $(A_DAY),200)

bench-rest: setup ## Measure `sluice dev` while nothing happens: CPU in % of a core, PSS in MiB (MINUTES=10)
	$(RUN)/python -m services.ctl.bench.rest --minutes $(or $(MINUTES),10)

bench-console: setup ## Measure the console: CPU and memory with 10,000 workloads, 50 open pages and 50 changes a second
	$(RUN)/python -m services.console.bench

bench-startup: setup ## Measure the start of quick commands: CPU ms of each against a `sluice dev`
	$(RUN)/python -m services.ctl.bench.startup

contracts: setup ## Regenerate docs/reference, dashboards and deploy/nats/{streams,contexts}; fails if anything changed
	$(RUN)/python -m services.reference.write
	$(RUN)/python -m services.ctl.setup.nats_files
	$(RUN)/python -m services.reference.dashboards
	$(RUN)/python -m tests.kueue.record
	git diff --exit-code -- docs/reference services/console/http/static/reasons.js docs/explanation/faults.md deploy/nats/streams deploy/nats/contexts deploy/grafana/dashboards

trial: setup ## Open every page of the console with 600 workloads in a real browser: seconds, shifts, errors, axe (PAGE_SECONDS=1, the goal)
	PAGE_SECONDS=$(PAGE_SECONDS) $(RUN)/python -m tests.integration.page.trial

record-metrics: setup ## Record the metrics of the services again, for the tests of dashboards and rules
	$(RUN)/python -m tests.monitoring.record

docs: setup ## Build the docs site in dist/site; any warning fails
	@NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --quiet
	@echo "docs: dist/site/index.html"

audit: setup ## Ask OSV for known vulnerabilities of what is locked; without network it says so (STRICT=1: fails)
	@$(RUN)/python -m services.reference.release.audit $(if $(STRICT),--strict)

release: setup ## Record digests of base images and a bill of materials in dist/, signed (KEY=file, or UNSIGNED=1)
	@$(RUN)/python -m services.reference.release.files $(if $(KEY),--key $(KEY)) $(if $(UNSIGNED),--unsigned)

ci: ## What CI runs
	.ci/run

clean: ## Remove what was installed and built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
