# Everything works in a fresh clone on a machine with python3 (3.10 or newer), its venv module and a C compiler.
#
# Two environments, each with a build directory of its own: .venv as users have it, .venv-test with the fail points
# that the tests need. Both install in place, so that only a change to what is compiled calls for installing again.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# setuptools and wheel build PySpark, which comes as its source.
BUILD_REQUIREMENTS := 'scikit-build-core>=0.11' 'cython>=3.1' cmake ninja setuptools wheel
# PySpark is 450 MB of jars. Its wheel, which pip makes only to unpack it, need not be compressed.
export DIST_EXTRA_CONFIG := $(CURDIR)/tools/uncompressed-wheels.cfg
# Installing writes down the version, which jlog/__init__.py has, and copies two files to the top level.
COMPILED := Makefile pyproject.toml jlog/__init__.py jlog/cli/jlogtool.py jlog/spark/pyspark_jlog.py pyx $(wildcard pyx/* pyx/*/*)

HAS_HEADERS := import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
USABLE := import ensurepip, sys, venv; sys.version_info < (3, 10) and sys.exit(1); $(HAS_HEADERS)
# Where none is usable it is plain python3, and `machine` says what it lacks.
PYTHON ?= $(eval PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3; do \
	$$python -c '$(USABLE)' 2>/dev/null && break; done; echo $$python))$(PYTHON)

PYTHONS ?= $(shell for python in python3.10 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c '$(USABLE)' 2>/dev/null && echo $$python; done)

release = .venv/bin/python
test = .venv-test/bin/python
install = $(1) -m pip install --quiet --no-build-isolation --no-compile
compile = $(1) -m pip install -v --no-build-isolation --no-compile --no-deps
install_release = $(call install,$(release)) -C build-dir=build/release
install_test = $(call install,$(test))
# Spark's Python processes would import PySpark from this archive, and compile all of it each time: it comes first in their path.
drop_spark_zip = find $(1) -path '*/pyspark/python/lib/pyspark.zip' -delete

# What runs a Kafka broker. Installed where that may be done; without it those tests skip, and say how.
JAVA := maven default-jre-headless
POMS := tools/kafka-broker.xml tests/kafka/spark-source.xml tests/spark/tables/connectors.xml
# The newest that the connectors of Delta Lake and Iceberg support. The tests of tables run with it.
SPARK_FOR_TABLES := 4.1
as_root := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)

# A line for each part of an installation, with the seconds it took.
step := @tools/step

.PHONY: help demo pyspark kafka test test-all weekly ready test-sanitized fuzz bench lint docs recording screenshots build wheel clean machine java

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-14s %s\n' "$$target" "$$text"; done

# Spark is fetched while jlog is compiled and shown. The demo's stdin ends when that is done.
demo: .venv/.packages ## shows what jlog does, in a minute; INPUT='FILE…' on files of yours; SPARK=0 without Spark; KAFKA=1 also through a broker
	@$(if $(filter 0,$(SPARK)),,[ -e .venv/.packages-spark ] || echo "         Spark, 450 MB, is fetched meanwhile; SPARK=0 leaves it out")
	@{ $(if $(filter 0,$(SPARK)),:,$(MAKE) pyspark 2>&1); } | { $(MAKE) .venv/.installed$(if $(KAFKA),-kafka build/.broker) </dev/null && \
		tools/step --show "the demo" $(if $(KAFKA),tools/kafka-broker sh -c '$(run_demo) --kafka "$$KAFKA" $(INPUT)',$(run_demo) $(INPUT)); }

run_demo = $(release) docs/examples/demo/run.py $(if $(filter 0,$(SPARK)),,--spark --after-stdin)

# Large, and of no use without Java: the demo says what it lacks, and the rest of it stands.
pyspark: .venv/.packages
	@if command -v java >/dev/null || [ -x "$$JAVA_HOME/bin/java" ]; then $(MAKE) .venv/.packages-spark || true; fi

kafka: ## a small Kafka broker to try things on, until Ctrl-C; needs Java and Maven
	@tools/kafka-broker $(ARGS)

test: ready ## runs the tests; ARGS='-k torn' are pytest's arguments, ARGS=--slow runs those too that take minutes
	$(step) --show "the tests" $(test) -m pytest -n auto --dist loadgroup $(ARGS)

test-all: ready ## runs those tests too that take long: every kill, every state of the models; ARGS as for test
	$(step) --show "all tests" $(test) -m pytest -n auto --dist loadgroup --exhaustive $(ARGS)

weekly: ready ## runs the programs that look for mistakes, for an hour each; ARGS='torture --seconds 600' is one of them
	@$(test) tools/weekly.py $(ARGS)

# One part waits for the network while another compiles.
ready: .venv-test/.tools
	@$(MAKE) -j4 .venv-test/.core .venv-test/.packages build/.wheelhouse java
	@if $(PYTHON) tools/kafka-broker --check 2>/dev/null; then $(MAKE) build/.classes; fi
	@touch .venv-test/.installed

# Python itself is not built with the sanitizers. So their libraries are loaded before it, and leaks are not looked for,
# since Python has leaks of its own.
SANITIZERS = $(foreach library,asan ubsan,$(shell $(CC) -print-file-name=lib$(library).so))
# The sanitizers write their reports into files: pytest holds back what a test prints, and loses it if they end the process.
REPORTS = $(CURDIR)/build/sanitized/report
SANITIZED = LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path=$(REPORTS) \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:log_path=$(REPORTS) PYTHONMALLOC=malloc

test-sanitized: .venv-sanitized/.installed ## runs the tests under the address and undefined-behaviour sanitizers; ARGS as for test
	@rm -f $(REPORTS).*
	$(SANITIZED) .venv-sanitized/bin/python -m pytest -n auto --dist loadgroup \
		$(or $(ARGS),--slow --ignore=tests/kafka --ignore=tests/spark) || { cat $(REPORTS).* 2>/dev/null; exit 1; }

fuzz: ## feeds hostile bytes to the decoders of the core, for ten minutes; ARGS='--seconds 3600 --seed 7'
	@mkdir -p build
	$(CC) -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fsanitize-coverage=trace-pc -Ipyx \
		-c tools/fuzz/headers.c -o build/fuzz-headers.o
	$(CC) -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
		tools/fuzz/standalone.c build/fuzz-headers.o -o build/fuzz-headers
	build/fuzz-headers $(or $(ARGS),--seconds 600) --failing build/fuzz-failing tools/fuzz/corpus/*

bench: .venv/.installed-bench ## measures; ARGS are those of bench/core.py
	$(release) bench/core.py $(ARGS)

lint: .venv-test/.installed ## checks style, types, stubs and layers
	$(test) -m ruff check
	$(test) -m ruff format --check
	PATH="$(CURDIR)/.venv-test/bin:$$PATH" cython-lint pyx
	$(test) -m mypy
	MYPYPATH=tools $(test) -m mypy bench
	@for example in docs/examples/*; do $(test) -m mypy $$example || exit 1; done # one by one, because each has a run.py
	$(test) -m mypy.stubtest jlog._core --mypy-config-file pyproject.toml --ignore-disjoint-bases --ignore-missing-stub
	$(test) tools/check_layers.py
	$(test) tools/model/frozen.py # the core has not changed without its model

docs: .venv/.installed-docs ## builds the documentation into build/docs
	$(release) -m sphinx -q -W --keep-going -d build/doctrees docs build/docs
	@echo build/docs/index.html

recording: .venv/.installed .venv-test/.installed ## records the demo anew, into docs/demo.svg
	PATH="$(CURDIR)/.venv/bin:$$PATH" $(test) tools/recording.py docs/demo.svg jlogtool demo

screenshots: .venv-test/.installed ## takes the manual's pictures of the console anew, into docs/console; needs chromium
	@mkdir -p docs/console
	TMPDIR=/tmp JLOG_SCREENSHOTS="$(CURDIR)/docs/console" $(test) -m pytest -q -k manual tests/cli/test_console_browser.py

build: .venv-test/.installed ## compiles what has changed, for the tests

wheel: .venv-test/.packages ## builds the source distribution and a wheel for each Python here into dist; PYTHONS='python3.12' chooses
	$(test) tools/wheels.py dist $(PYTHONS)
	@ls -l dist

clean: ## removes all that these commands have made
	rm -rf build dist .venv .venv-test .venv-sanitized .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find jlog tests bench tools -name __pycache__ -prune -exec rm -rf {} +

.venv/.installed: .venv/.packages $(COMPILED)
	$(step) "jlog, compiled" $(call compile,$(release)) -C build-dir=build/release -e .
	@touch $@

.venv/.installed-%: .venv/.installed
	$(step) "what $* needs" $(install_release) -e '.[$*]'
	@touch $@

.venv/.packages: .venv/.tools pyproject.toml tools/requirements.py
	@$(release) tools/requirements.py sql >.venv/requirements.txt
	$(step) "the packages that jlog needs" $(call install,$(release)) -r .venv/requirements.txt
	@touch $@

.venv/.packages-%: .venv/.packages
	@$(release) tools/requirements.py $* >.venv/$*.txt
	$(step) "what $* needs" $(call install,$(release)) -r .venv/$*.txt
	@touch $@

.venv-test/.installed: .venv-test/.tools $(COMPILED)
	@$(MAKE) -j2 .venv-test/.core .venv-test/.packages
	@touch $@

.venv-test/.core: .venv-test/.tools $(COMPILED)
	$(step) "jlog for the tests, compiled" $(call compile,$(test)) -C build-dir=build/test -C cmake.define.JLOG_FAILPOINTS=ON -e .
	@touch $@

.venv-test/.packages: .venv-test/.tools pyproject.toml tools/requirements.py
	@$(test) tools/requirements.py test lint >.venv-test/requirements.txt
	$(step) "the packages that the tests need" $(install_test) -r .venv-test/requirements.txt
	@$(call drop_spark_zip,.venv-test)
	@touch $@

# All that building a wheel and installing it takes, so that a test does both without a network.
build/.wheelhouse: .venv-test/.tools pyproject.toml tools/requirements.py
	@$(test) tools/requirements.py >.venv-test/base.txt
	@rm -rf build/wheelhouse
	$(step) "the packages that a wheel is built with" $(test) -m pip download --quiet --dest build/wheelhouse \
		$(BUILD_REQUIREMENTS) -r .venv-test/base.txt
	@touch $@

.venv-sanitized/.installed: .venv-sanitized/.tools $(COMPILED)
	$(step) "jlog with the sanitizers, compiled" $(call install,.venv-sanitized/bin/python) -C build-dir=build/sanitized \
		-C cmake.define.JLOG_FAILPOINTS=ON -C cmake.define.JLOG_SANITIZE=ON -e '.[test]'
	@touch $@

.venv/.made .venv-test/.made .venv-sanitized/.made: | machine
	$(step) "an environment in $(@D)" $(PYTHON) -m venv --clear $(@D)
	@touch $@

.venv/.tools .venv-test/.tools .venv-sanitized/.tools: %/.tools: %/.made Makefile
	$(step) "pip, and what compiles jlog" $(@D)/bin/python -m pip install --quiet --upgrade pip $(BUILD_REQUIREMENTS)
	@touch $@

# Skipped tests say again what is missing.
java:
	@check() { $(PYTHON) tools/kafka-broker --check 2>/dev/null; }; \
	check || { command -v apt-get >/dev/null && tools/step "Java and Maven" $(as_root) sh -c \
	  'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(JAVA)'; } || :; \
	{ $(PYTHON) tools/kafka-broker --check && $(MAKE) build/.jars build/.pyspark-$(SPARK_FOR_TABLES); } || \
	echo "the tests that need it will skip" >&2

build/.broker: tools/kafka-broker.xml tools/kafka_broker.py
	$(step) "a Kafka broker" $(PYTHON) tools/kafka-broker --fetch $<
	@touch $@

build/.jars: $(POMS) tools/kafka_broker.py
	$(step) "a Kafka broker, and Spark's connectors" $(PYTHON) tools/kafka-broker --fetch $(POMS)
	@touch $@

# Beside the environment's own PySpark, and without what it needs, which is there.
build/.pyspark-%: .venv-test/.tools
	@rm -rf build/pyspark-$*
	$(step) "PySpark $*, for the connectors of tables" $(call install,$(test)) --no-deps --target build/pyspark-$* 'pyspark==$*.*'
	@$(call drop_spark_zip,build/pyspark-$*)
	@touch $@

# The tests start Spark dozens of times.
build/.classes: .venv-test/.packages tests/spark/sessions.py
	$(step) "the classes that Spark loads" env PYTHONPATH=tests $(test) tests/spark/sessions.py || : # it starts without them too
	@touch $@

# Says in one line all that is missing. Of a Python that is missing or too old, nothing else is asked.
machine:
	@said=; packages=; lacks() { said="$${said:+$$said, }$$1"; packages="$$packages $$2"; }; \
	if ! command -v $(PYTHON) >/dev/null; then lacks "no $(PYTHON)" "python3 python3-venv python3-dev"; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then \
		lacks "$(PYTHON) is older than 3.10" "python3 python3-venv python3-dev"; \
	else \
		$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || lacks "$(PYTHON) has no venv module" python3-venv; \
		$(PYTHON) -c '$(HAS_HEADERS)' || lacks "no Python.h for $(PYTHON)" python3-dev; \
	fi; \
	command -v $(firstword $(CC)) >/dev/null || lacks "no C compiler" "gcc libc6-dev"; \
	[ -z "$$said" ] || { echo "$$said: apt-get install$$packages" >&2; exit 1; }
