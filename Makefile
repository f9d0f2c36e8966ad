# Every command of this project. All they need is make and Python 3.11 or newer:
#   make PYTHON=python3.13 test       with another Python
#   make test ARGS="-k renewal -x"    with arguments for pytest, such as -n 0 for one process

PYTHON ?= python3
BIN := .venv/bin
BOOTSTRAP := $(PYTHON) tools/bootstrap.py

.PHONY: help demo demo-postgres demo-celery demo-family demo-failover demo-admin run test coverage simulate chaos mutants messages public-api hard-cases bench lint types lock changelog build release clean
.PHONY: ci-lint ci-test ci-versions ci-chaos ci-package
.NOTPARALLEL:

help: ## Show these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

demo: ## See the locks and the cache at work, on a Redis of its own
	@$(BOOTSTRAP) celery
	@$(BIN)/python example_project/demo.py $(ARGS)

demo-postgres: ## See a lock that still holds at COMMIT, beside one that doesn't, on a PostgreSQL of its own
	@$(BOOTSTRAP) postgresql celery
	@$(BIN)/python example_project/demo.py --commit $(ARGS)

demo-celery: ## See two workers and two beats, some of which are killed, with plain tasks and with ours
	@$(BOOTSTRAP) celery
	@$(BIN)/python example_project/jobs_demo.py $(ARGS)

demo-family: ## See fair locks, read-write locks, semaphores, latches and multi-locks at work, in numbers
	@$(BOOTSTRAP) celery
	@$(BIN)/python example_project/family_demo.py $(ARGS)

demo-failover: ## See processes count under a lock behind Redis Sentinel, while the master is killed twice
	@$(BOOTSTRAP) celery
	@$(BIN)/python example_project/failover_demo.py $(ARGS)

demo-admin: ## See the admin's page of held locks, with 10 000 of them
	@$(BOOTSTRAP) celery
	@$(BIN)/python example_project/admin_demo.py $(ARGS)

run: ## Serve the example project
	@$(BOOTSTRAP) celery
	@$(BIN)/python example_project/demo.py --serve $(ARGS)

test: ## Run the tests, all but the long ones
	@$(BOOTSTRAP) test
	@$(BIN)/python -m pytest -n 6 -m "not chaos" $(ARGS)

chaos: ## Run the long tests, whose subject is real time: silence, kill -9, real workers
	@$(BOOTSTRAP) test
	@$(BIN)/python -m pytest -n 6 -m chaos $(ARGS)

coverage: ## Measure the branch coverage of the tests, and print it by folder
	@$(BOOTSTRAP) coverage
	@mkdir -p .cache/coverage
	@$(BIN)/python -m pytest -n 6 --cov --cov-report= $(ARGS)
	@$(BIN)/python -m tools.coverage_report

simulate: ## Simulate processes in virtual time (SEEDS=1000000 for a night, WORLD=lock SEED=123 tells one story)
	@$(BOOTSTRAP) test
	@$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(WORLD),--world $(WORLD)) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutants: ## Apply some hundred small defects one by one, and count those that the tests notice (ARGS="--only 'lua-*'")
	@$(BOOTSTRAP) test
	@$(BIN)/python -m tools.mutants $(ARGS)

messages: ## Take new messages into the translations, and compile them
	@$(BOOTSTRAP) test
	@$(BIN)/python -m tools.messages $(ARGS)

public-api: ## Write tests/public_api.txt, the reviewed list of everything public
	@$(BOOTSTRAP) test
	@$(BIN)/python -m tools.public_api

hard-cases: ## Write docs/reference/hard-cases.md, the list of the cases that the tests name
	@$(BOOTSTRAP)
	@$(BIN)/python -m tools.hard_cases

lint: ## Check style, format, floors and the workflow of CI
	@$(BOOTSTRAP) lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.prose
	@$(if $(wildcard .github),$(BIN)/zizmor --offline --quiet .github)

types: ## Check types
	@$(BOOTSTRAP) types
	@$(BIN)/mypy
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

bench: ## Measure the speed beside other libraries, write the page and the charts (ROWS=hot,celery ROUNDS=3: print only)
	@$(PYTHON) -m benchmarks.venvs
	@.cache/bench/main/bin/python -m benchmarks $(if $(ROWS),--rows $(ROWS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

lock: ## Write tools/constraints.txt: the newest versions of everything that development needs
	@: > tools/constraints.txt
	@rm -rf .venv
	@$(BOOTSTRAP) dev release coverage
	@$(BIN)/python -m pip freeze --exclude-editable > tools/constraints.txt

changelog: ## Move the entries of changelog.d/ into CHANGELOG.md (VERSION=0.2.0)
	@$(BOOTSTRAP) release
	@$(BIN)/towncrier build --version $(VERSION) $(ARGS)

build: ## Build the wheel and the source archive into dist/
	@$(BOOTSTRAP) build
	@$(BIN)/python -m build

release: build ## Build what is uploaded, and check the page that a package index makes of it
	@$(BOOTSTRAP) release
	@$(BIN)/python -m tools.index_page --release dist/*.whl

ci-lint: ## The jobs of CI, which install what they need on Debian: style, format, floors and types
	@bash .ci/lint

ci-test: ## the tests with every server and a browser
	@bash .ci/test

ci-versions: ## other versions of Python, Django, redis-py, Celery and servers
	@bash .ci/versions

ci-chaos: ## the long tests and the fuzz
	@bash .ci/chaos

ci-package: ## the wheel, README's quickstart and the demos
	@bash .ci/package

clean: ## Remove everything that these commands made
	@rm -rf .venv .cache dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
