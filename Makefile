# Every target does its own set-up. A fresh machine only needs git, GNU make and Python 3.11 or newer.
# `make` alone lists the common targets, `make more` the others.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help more demo test test-all lint docs bench dist clean \
	demo-s3 simulate model torture sanitize scale test-seaweedfs test-azurite interop engines loaders frameworks \
	check-docs pictures lock proto release

# The oldest supported Python comes first, because the lock is made with it. `make test PYTHON=python3.13` overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# Versions and hashes of the tools that test, check and build asyncrec. `make test LOCK=` tries the newest versions.
LOCK ?= requirements/locked

# Passed on to the target's program: `make test ARGS="-k frames"`, `make demo ARGS="--pages 200"`.
ARGS ?=

# pytest in the number of processes that tests/conftest.py returns, at most 8.
AT_ONCE := -n auto --maxprocesses 8 --dist worksteal

PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PLUGIN_PACKAGES := $(filter-out %.egg-info,$(wildcard $(PLUGINS:%=%/asyncrec_*)))
PROJECTS := pyproject.toml setup.py $(wildcard asyncrec/_native/*.[ch]) $(PLUGINS:%=%/pyproject.toml) requirements/ours.txt

# Each environment has a stamp file, which is older than the environment's inputs if the environment must be updated.
READY := .venv/.ready
DEMO_READY := .venv/.demo
DIST_READY := .venv-dist/.ready
DOCS_READY := .venv-docs/.ready
# Older versions of Scrapy that the plugin supports; `make test` has the newest.
SCRAPYS := $(patsubst requirements/scrapy-%.txt,%,$(wildcard requirements/scrapy-*.txt))
ORIGINALS := .venv-interop/originals
AXE := .venv-docs/node_modules/axe-core/axe.min.js
AZURITE_READY := .venv-azurite/.ready

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes, and each would compile every module again if Python could not cache bytecode.
unexport PYTHONDONTWRITEBYTECODE

# Text after "##" is for `make`, text after "#:" for `make more`.
list = sed -n 's/^\([a-z][a-z0-9-]*\):.*$(1) \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

help:
	@$(call list,[#][#])
	@echo "  make more              the other targets"

more:
	@$(call list,[#]:)

demo: $(DEMO_READY) ## crawl thousands of local documents into a sharded data set in ./demo-data, and read it back
	@.venv/bin/python examples/crawl_site.py $(ARGS)

# Worlds run until four minutes have passed, and for at least 40 s, always from the same seed.
test: $(READY) ## 6 minutes: tests that take less than a second, then worlds of the simulation; ARGS="-k name" for pytest, then no worlds
	@begun=$$(date +%s); \
	.venv/bin/python -m pytest -q --short $(AT_ONCE) $(ARGS) $(if $(ARGS),,&& \
	seconds=$$((begun + 240 - $$(date +%s))) && \
	PYTHONPATH=tests .venv/bin/python -m simulation.run --seed 1 --seconds $$((seconds > 40 ? seconds : 40)) \
		--workers $$(getconf _NPROCESSORS_ONLN))

test-all: $(READY) ## every test, on every loop, with every round: half an hour on two cores; ARGS="tests/shards"
	@.venv/bin/python -m pytest -q $(AT_ONCE) $(ARGS)

lint: $(READY) ## ruff (rules and format), mypy --strict, and zizmor for the workflows
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check .
	@.venv/bin/python -m mypy asyncrec examples tests/typing tests/model $(PLUGIN_PACKAGES)
	@.venv/bin/zizmor --offline --quiet .github/workflows

docs: $(DOCS_READY) ## build the documentation into ./site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet $(ARGS)

bench: .venv-bench/.ready ## speed and memory beside others (a large download, once); ARGS=--quick, ARGS="--only s3", or gcs, azure, stores, formats, epoch, commits
	@PYTHONPATH=tests/benchmarks .venv-bench/bin/python tests/benchmarks/run.py $(ARGS)

dist: $(DIST_READY) ## build sdists and wheels of all distributions into ./dist, and try them where nothing else is installed
	@.venv-dist/bin/python tests/packages/dist.py --demo $(ARGS)

clean: ## remove environments, caches and build output; ./demo-data stays
	@rm -rf .venv .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site *.egg-info plugins/*/*.egg-info
	@find asyncrec -name "*.so" -delete
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

demo-s3: $(READY) #: `make demo` into s3://, on a store that it starts itself, and a second run that continues
	@.venv/bin/python examples/demo_s3.py $(ARGS)

simulate: $(READY) #: whole worlds from a seed, with kills and faults; ARGS="--seconds 600 --seed 7 --workers 2"
	@PYTHONPATH=tests .venv/bin/python -m simulation.run $(ARGS)

model: $(READY) #: the protocol of a data set in every order of its steps: ten minutes; ARGS="--without fence", "--rules"
	@PYTHONPATH=tests .venv/bin/python -m model.run $(ARGS)

torture: $(READY) #: kills, power cuts, failing stores, damaged files, from a seed: minutes; ARGS="--rounds 50"
	@.venv/bin/python tests/torture/run.py $(ARGS)

# A separate build with the sanitizers for addresses and for undefined behaviour. Python uses malloc for every object,
# so that the sanitizer knows the bounds of each. Leaks are ignored, because Python itself leaks a little on purpose.
sanitize: $(READY) #: the C under sanitizers, against the Python beside it; ARGS="--cases 1000000 --only cut_frames"
	@mkdir -p .cache
	@$(CC) -shared -fPIC -g -O1 -std=c11 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
		-Wall -Wextra -Werror -DPy_LIMITED_API=0x030B0000 \
		-isystem "$$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
		asyncrec/_native/*.c -o .cache/sanitized.abi3.so
	@LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=tests \
		.venv/bin/python -m native.fuzz --module .cache/sanitized.abi3.so $(ARGS)

# This environment has only the store, which is a program; the tests run in .venv.
test-seaweedfs: $(READY) .venv-seaweedfs/.ready #: the tests of the S3 plugin on a real store (a download of 50 MB, once)
	@PATH="$(CURDIR)/.venv-seaweedfs/bin:$$PATH" ASYNCREC_TEST_S3=seaweedfs \
		.venv/bin/python -m pytest -q plugins/asyncrec-s3/tests $(ARGS)

# Microsoft's emulator is a Node program. `make test` does not need Node.
test-azurite: $(READY) $(AZURITE_READY) #: the Azure plugin's conformance on Azurite (needs Node and npm; a download of 50 MB, once)
	@ASYNCREC_TEST_AZURITE="$(CURDIR)/.venv-azurite/node_modules/.bin/azurite-blob" \
		.venv/bin/python -m pytest -q plugins/asyncrec-azure/tests/test_azurite.py $(ARGS)

scale: $(READY) #: what a crawl of a thousand writers asks of S3, and what that costs; ARGS="--writers 200"
	@PYTHONPATH=tests .venv/bin/python -m scale.run $(ARGS)

# Each file has its own process, because TensorFlow and tfrecord register the same protobuf names and cannot be imported
# together. pytest exits with 5 if it selected no test.
interop: $(ORIGINALS)/.ready #: both directions against TensorFlow, tfrecord and tensorboardX (a large download, once)
	@failed=0; for file in tests/interop/test_*.py; do \
		echo "$$file"; \
		TF_CPP_MIN_LOG_LEVEL=3 .venv-interop/bin/python -m pytest -q -W default $$file $(ARGS); \
		case $$? in 0 | 5) ;; *) failed=1 ;; esac; \
	done; exit $$failed

# The tests run on a year-old Ray and on the newest, because Ray may change its data source classes in any release.
# pytest exits with 5 if it selected no test.
engines: .venv-engines/.ready .venv-engines-ray-2.51/.ready .venv-engines-spark/.ready #: Ray, Spark, Beam, pandas, Polars, DuckDB on our data sets (large downloads, once); ARGS="-k fails"
	@java -version >/dev/null 2>&1 || { echo "Spark needs Java 17 or newer, and there is no java on the PATH; the tests of Ray alone: .venv-engines/bin/python -m pytest --ignore tests/engines/spark tests/engines" >&2; exit 1; }
	@failed=0; for environment in .venv-engines .venv-engines-ray-2.51; do \
		echo "$$environment"; \
		RAY_USAGE_STATS_ENABLED=0 $$environment/bin/python -m pytest -q -W default --ignore tests/engines/spark \
			tests/engines $(ARGS); \
		case $$? in 0 | 5) ;; *) failed=1 ;; esac; \
	done; \
	echo .venv-engines-spark; \
	.venv-engines-spark/bin/python -m pytest -q -W default tests/engines/spark $(ARGS); \
	case $$? in 0 | 5) ;; *) failed=1 ;; esac; \
	exit $$failed

loaders: .venv-loaders/.ready #: grain on our data sets, in threads and processes (a download, once); ARGS="-k state"
	@.venv-loaders/bin/python -m pytest -q -W default tests/loaders $(ARGS)

# pytest exits with 5 if it selected no test. The browser comes from the system: without one, its test is skipped.
frameworks: $(SCRAPYS:%=.venv-scrapy-%/.ready) .venv-playwright/.ready #: the plugin on older Scrapys, pages of Playwright (a download for each, once); ARGS="-k kill"
	@failed=0; for version in $(SCRAPYS); do \
		echo "Scrapy $$version"; \
		.venv-scrapy-$$version/bin/python -m pytest -q -W default plugins/asyncrec-scrapy/tests $(ARGS) || failed=1; \
	done; \
	echo "Playwright"; .venv-playwright/bin/python -m pytest -q -rs -W default tests/pages/test_playwright.py $(ARGS); \
	case $$? in 0 | 5) ;; *) failed=1 ;; esac; \
	exit $$failed

check-docs: $(AXE) #: every link, and each page in Chromium at two widths, with axe-core (needs Chromium and npm)
	@$(MAKE) --no-print-directory docs ARGS=
	@.venv-docs/bin/python docs/check_site.py site --axe $(AXE) $(ARGS)

pictures: $(DOCS_READY) #: draw docs/pictures anew, from real runs; needs Chromium. ARGS="--check page.html" checks pages
	@.venv-docs/bin/python docs/make_pictures.py $(ARGS)

proto: .venv-proto/.ready #: generate asyncrec/example/proto/*_pb2.py anew
	@.venv-proto/bin/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. asyncrec/example/proto/*.proto

# Resolves for all supported Pythons and systems, with hashes. asyncrec-gcs needs Python 3.11.3.
RESOLVE = .venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11.3 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' --no-emit-package asyncrec $(PLUGINS:plugins/%=--no-emit-package %)

lock: #: resolve the tools that test, check and build asyncrec again, and write versions and hashes to requirements/locked
	@$(call environment,.venv-lock,uv)
	@rm -rf requirements/locked.new && mkdir requirements/locked.new
	@$(RESOLVE) --output-file requirements/locked.new/ci.txt --group test --group lint requirements/ours.txt
	@$(RESOLVE) --output-file requirements/locked.new/demo.txt --constraint requirements/locked.new/ci.txt requirements/demo.txt
	@$(RESOLVE) --output-file requirements/locked.new/dist.txt --group dist
	@$(RESOLVE) --output-file requirements/locked.new/wheels.txt --group wheels
	@printf '%s\n' 'pip>=25.1' 'setuptools>=77' | $(RESOLVE) --output-file requirements/locked.new/pip.txt -
	@rm -rf requirements/locked .venv-lock && mv requirements/locked.new requirements/locked

release: #: VERSION=0.2.0: the version and the changelog's heading, a commit and a tag; nothing is published
	@$(PYTHON) tests/packages/release.py $(VERSION)

# $(call environment,folder,pip arguments): make the virtual environment unless it is there, and install.
# --group needs pip 25.1. An environment whose Python no longer runs is replaced.
define environment
set -e; \
if ! $(1)/bin/python -c '' 2>/dev/null; then \
	test -n "$(PYTHON)" || { echo "asyncrec needs Python 3.11 or newer, and none was found on the PATH. Install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }; \
	echo "Making $(1) with $$($(PYTHON) --version); this is done once."; \
	$(PYTHON) -m venv --clear $(1); \
fi; \
$(1)/bin/python -m pip install --quiet --no-compile $(if $(wildcard requirements/locked/pip.txt),--require-hashes -r requirements/locked/pip.txt,--upgrade pip setuptools); \
$(1)/bin/python -m pip install --quiet $(2)
endef

# $(call development,file of our projects,file in the lock,pip arguments without a lock): like environment, but faster.
# pip does not resolve locked versions, makes no build environment for each of our projects, and does not compile on one
# processor. Files that do not compile are templates.
define development
$(call environment,.venv,--no-compile $(if $(LOCK),--require-hashes --no-deps -r $(LOCK)/$(2),$(3))); \
.venv/bin/python -m pip install --quiet --no-build-isolation --no-deps -r $(1); \
.venv/bin/python -m compileall -qq -j 0 .venv/lib asyncrec plugins || true
endef

$(READY): $(PROJECTS) $(if $(LOCK),$(LOCK)/ci.txt)
	@$(call development,requirements/ours.txt,ci.txt,--group test --group lint -r requirements/ours.txt)
	@touch $@ $(DEMO_READY)

# The part of .venv that the demo and the tutorial need, without frameworks.
$(DEMO_READY): $(PROJECTS) requirements/demo.txt $(if $(LOCK),$(LOCK)/demo.txt)
	@$(call development,requirements/demo.txt,demo.txt,-r requirements/demo.txt)
	@touch $@

$(DIST_READY): requirements/locked/dist.txt
	@$(call environment,.venv-dist,--require-hashes -r $<)
	@touch $@

$(DOCS_READY): $(PROJECTS)
	@$(call environment,.venv-docs,--group docs -r requirements/ours.txt)
	@touch $@

# Every other environment is made from a file of requirements.
.venv-%/.ready: requirements/%.txt $(PROJECTS)
	@$(call environment,.venv-$*,--group runner -r $<)
	@touch $@

$(ORIGINALS)/.ready: .venv-interop/.ready
	@# Without dependencies: datum requires TensorFlow with CUDA, and an older NumPy than TensorFlow does.
	@.venv-interop/bin/python -m pip install --quiet --no-deps 'datum==1.13.*'
	@# Only tensorboardX's source distribution has its tests; the version must be the installed one.
	@rm -rf $(ORIGINALS) && mkdir -p $(ORIGINALS)/tensorboardX
	@.venv-interop/bin/python -m pip download --quiet --no-deps --no-binary tensorboardX --dest $(ORIGINALS) \
		"tensorboardX==$$(.venv-interop/bin/python -c 'from importlib.metadata import version; print(version("tensorboardX"))')"
	@tar -xzf $(ORIGINALS)/tensorboardx-*.tar.gz --strip-components 1 -C $(ORIGINALS)/tensorboardX
	@touch $@

# Azurite 3.35 is the last version that runs on Node 20.
$(AZURITE_READY):
	@command -v npm >/dev/null || { echo "Azurite needs Node 20 or newer, with npm; neither is needed otherwise." >&2; exit 1; }
	@mkdir -p .venv-azurite
	@npm install --silent --no-audit --no-fund --prefix .venv-azurite azurite@3.35.0
	@touch $@

$(AXE): $(DOCS_READY)
	@npm install --silent --no-audit --no-fund --prefix .venv-docs axe-core@4.14.1
	@touch $@
