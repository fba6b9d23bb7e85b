# PayOnce. `make` lists what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PYTEST_FLAGS ?=
PARALLEL ?= -n 3
# what is installed from where: both distributions and each list of other packages
PACKAGING = pyproject.toml distributions/payments/pyproject.toml distributions/payments/setup.py VERSION constraints.txt \
  $(wildcard requirements/*.txt)
# a commit has one order of its tests and one set of examples: a run again meets what CI met
ORDER = $(shell printf %d 0x0$$(git rev-parse HEAD 2>/dev/null | cut -c1-7))
SUITE = --dist loadfile --no-loadscope-reorder --randomly-seed=$(ORDER) --hypothesis-seed=$(ORDER)

# tests start hundreds of processes: what one has compiled, the others need not compile again
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test coverage corner cluster nginx bench chaos fuzz lint docs pictures sbom fmt clean programs wrk

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/pip:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/run.stamp: $(PACKAGING) | $(VENV)/pip
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements/shop.txt -r requirements/embedded.txt \
	  -c constraints.txt
	@touch $@

$(VENV)/dev.stamp: $(PACKAGING) | $(VENV)/pip
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt -c constraints.txt
	@touch $@ $(VENV)/run.stamp

run: $(VENV)/run.stamp ## the whole shop on this machine; Ctrl-C stops it (WEB=3 for three web processes)
	@exec $(PY) -m shop.devserver.run --stop-with-parent

# $(call apt,PACKAGES): succeeds where they are there afterwards; the lists are fetched where the old ones do not do
APT_INSTALL = DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends
apt = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing $(1)" \
  && { $(APT_INSTALL) $(1) >/dev/null 2>&1 || { apt-get update -q >/dev/null && $(APT_INSTALL) $(1) >/dev/null; }; }
# the same for tests, which go on without
apt-or-skip = { $(call apt,$(1)); } || echo "Tests that need it will skip. Install it with: apt-get install $(1)"

# programs of the tests that pip cannot bring: how to see that it is there, and name of the package
programs:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  $(call apt-or-skip,chromium fonts-noto-cjk)
	@command -v redis-check-rdb >/dev/null || $(call apt-or-skip,redis-tools)
	@[ -e /usr/share/java/zookeeper.jar ] || $(call apt-or-skip,zookeeper)
	@PATH=$$PATH:/usr/sbin command -v pgbouncer >/dev/null || $(call apt-or-skip,pgbouncer)

# processes at once, each with servers of its own
ROOMS = tests/unit tests/integration
SYSTEM = tests/foreign tests/system --ignore=tests/system/cluster

ifdef ROOM
test: $(VENV)/dev.stamp
	@rooms="$(or $(wildcard $(ROOMS:=/$(ROOM))),$(wildcard $(foreach file,test_ */test_,$(ROOMS:=/$(dir $(ROOM))$(file)$(notdir $(ROOM))*.py))))"; \
	[ -n "$$rooms" ] || { echo "make test: neither tests/unit nor tests/integration has $(ROOM)" >&2; exit 2; }; \
	$(PY) -m pytest $(PARALLEL) $(SUITE) $$rooms $(PYTEST_FLAGS)
else
test: $(VENV)/dev.stamp programs nginx ## every test, on real servers in a data folder of their own (ROOM=payments/settlement for one room)
	@failed=; \
	part() { name=$$1; shift; $(PY) -m pytest "$$@" $(SUITE) $(PYTEST_FLAGS) || failed="$$failed $$name"; }; \
	part rooms $(PARALLEL) $(ROOMS); \
	part system $(PARALLEL) $(SYSTEM); \
	[ -z "$$failed" ] && echo "make test: all parts passed" || { echo "make test: failed:$$failed" >&2; exit 1; }
endif

# apart from `make test`: it makes each test half as long again
coverage: $(VENV)/dev.stamp programs ## how much of the code the rooms' tests run; fails below 95 %
	$(PY) -m pytest $(PARALLEL) $(SUITE) --cov --cov-report=term --cov-fail-under=95 $(ROOMS) $(PYTEST_FLAGS)

# a corner of noxfile.py: a Python and a Django, and a store under the name by which the tests' servers look for one
DJANGO = 6.1
STORE = valkey
CORNER = .nox/$(notdir $(PYTHON))-$(DJANGO)
$(CORNER)/stamp: $(PACKAGING)
	$(PYTHON) -m venv $(CORNER)
	grep -vi '^django==' constraints.txt > $(CORNER)/constraints.txt
	$(CORNER)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -r requirements/test.txt 'django==$(DJANGO).*' -c $(CORNER)/constraints.txt
	@touch $@

# all of the suite, or what .ci/run takes: what Django is under, or Redis (whose locks know nothing of Django), or doors
PARTS = tests/unit/idempotency tests/integration/idempotency
LOCKS_OF_REDIS = $(filter-out %/test_postgres.py %/test_sessions.py,$(wildcard tests/integration/idempotency/locks/test_*.py))
UNDER_DJANGO = tests/unit/idempotency $(addprefix tests/integration/,idempotency payments/settlement shop) \
  tests/system/test_service.py \
  $(addprefix --ignore=,$(LOCKS_OF_REDIS)) \
  $(addprefix --ignore=tests/integration/,shop/api/test_schema.py idempotency/test_inbox.py \
    $(addprefix payments/,settlement/test_observations.py settlement/test_guards.py webhooks/test_notifications.py))
UNDER_REDIS = tests/unit/idempotency $(filter-out %/test_zookeeper.py,$(LOCKS_OF_REDIS)) \
  $(addprefix tests/integration/idempotency/,protocol redis test_cachedmap.py) tests/system/stores/test_sentinel.py
DOORS = tests/unit/idempotency tests/integration/idempotency/test_forms.py \
  $(addprefix tests/integration/idempotency/,protocol functions postgres redis)
corner: $(CORNER)/stamp ## the library's suite on a corner of noxfile.py: PYTHON=python3.12 DJANGO=6.0 STORE=redis
	$(CORNER)/bin/python -m tests.redis_topologies $(STORE) $(CORNER)/$(STORE)
	@$(CORNER)/$(STORE)/redis-server --version
	PATH=$(CURDIR)/$(CORNER)/$(STORE):$$PATH TEST_DATA_DIR=.data/$(notdir $(CORNER))-$(STORE) \
	  $(CORNER)/bin/python -m pytest $(PARALLEL) $(SUITE) $(PARTS) $(PYTEST_FLAGS)

wrk:
	@command -v wrk >/dev/null || { $(call apt,wrk); } \
	  || { echo "wrk is missing: install it with apt-get install wrk"; exit 1; }

nginx:
	@PATH=$$PATH:/usr/sbin command -v nginx >/dev/null || $(call apt-or-skip,nginx-light)

cluster: $(VENV)/dev.stamp programs nginx ## the files of deploy/ over several servers, each of which is killed under load
	$(PY) -m pytest tests/system/cluster -v $(PYTEST_FLAGS)

bench: $(VENV)/dev.stamp wrk ## the benchmarks, as ratios measured side by side (ONLY=keyed for one); results in bench/results
	$(PY) -m shop.devserver.embedded --data-dir .data/bench -- $(PY) -m bench $(ONLY)

DURATION ?= 60
RUNS ?= 1

chaos: $(VENV)/dev.stamp ## a fault run: DURATION=60 SEED=1, or RUNS=10 seeds one after the other; prints the seed of a violation
	@$(PY) -m tests.system.chaos --duration "$(DURATION)" --seed "$(SEED)" --runs "$(RUNS)"

SECONDS ?= 20

fuzz: $(VENV)/dev.stamp ## bytes that nobody would send, to every reader of strangers' bytes: SECONDS=20 for each
	@$(PY) -m tests.system.fuzz --seconds "$(SECONDS)"

lint: $(VENV)/dev.stamp ## format, lint, types, import contracts, migrations, pins, deployment, docs, commit subjects
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(PY) -m shop.devserver.embedded --fast --data-dir .data/lint -- $(MAKE) --no-print-directory lint-django
	$(BIN)/lint-imports
	$(PY) -m pip check --disable-pip-version-check
	$(PY) deploy/dependencies.py check
	$(PY) deploy/check_docs.py
	$(PY) deploy/check_commits.py

.PHONY: lint-django
lint-django:
	SECRET_KEY=$$(head -c 64 /dev/urandom | base64 | tr -d '\n') PUBLIC_URL=https://shop.example DEBUG=0 \
	  $(PY) manage.py check --deploy --fail-level WARNING
	DEBUG=1 $(PY) manage.py makemigrations --check --dry-run
	DEBUG=1 $(PY) manage.py spectacular --validate --fail-on-warn --file /dev/null
	DEBUG=1 $(BIN)/mypy

docs: $(VENV)/dev.stamp ## the documentation as a site in site/; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(VENV)/dev.stamp programs ## the pictures of README and docs, and every page: open .data/pictures/index.html
	$(PY) -m pytest -q -s tests/system/browser/pictures.py

sbom: $(VENV)/dev.stamp ## what the shop runs on in production, as sbom.cdx.json (CycloneDX)
	$(PY) deploy/dependencies.py sbom sbom.cdx.json

fmt: $(VENV)/dev.stamp ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what was made, data included
	rm -rf $(VENV) .nox .data site staticfiles .import_linter_cache sbom.cdx.json .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
