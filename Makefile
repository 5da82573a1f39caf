# make demo: from a clone to a trained private model.   make test: lint, types, layering, the fast suite.   make docs:
# the documentation, site/index.html.
# make test-slow: what takes minutes, 563 tests: audits, 2,500 random networks and records, 140 kills, 1,000 changed run
# directories, full disks, cut lines, ranks, two network namespaces; 37 minutes on two cores.   make kills: 200 kills
# under trouble.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TOOLS  := .venv-tools
READY  := $(VENV)/.ready
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo docs notebooks test test-slow kills test-data test-dist lint reproduce-small book verify-deps sbom audit-deps clean

# Installed again only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,track,export,peers,cluster]'
	touch $@

demo: $(READY)
	$(BIN)/gossamer run

# The documentation as a folder, site/, that opens without a server: pages and API reference, every link checked.
docs: $(VENV)/.docs
	$(BIN)/python .ci/build_site.py
	$(BIN)/python .ci/check_site.py site

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# The notebooks anew, with what they print.
notebooks: $(READY)
	$(BIN)/python .ci/run_notebooks.py

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m 'slow and not data'

# 200 kills under low limits, full disks and locks; the slow suite has the first fifty of them.
kills: $(READY)
	GOSSAMER_KILL_SEEDS="0 1 2 3" $(BIN)/pytest -m slow tests/scenarios/test_kill.py

test-data: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m data

# The source archive and the wheel, the wheel in a clean environment of every Python that is on the machine.
test-dist:
	$(PYTHON) .ci/test_dist.py

# A few cells of every item in the reproduction book, run again and compared with it: under 20 minutes on two cores.
# Data sets: as `gossamer data get NAME` left them, or in the folder that GOSSAMER_DATA names. Continued where it was
# stopped; remove runs/reproduce-small to start again.
reproduce-small: $(READY)
	$(BIN)/python -m reproductions.small

# The book's pages, from its result files.
book: $(READY)
	$(BIN)/python -m reproductions pages

# Is what is installed what was recorded? Error 1: files were changed; 3: a wheel is not known. Nothing but this asks.
verify-deps: $(READY)
	$(BIN)/python .ci/verify_deps.py

# The tools have an environment of their own: what they need is not what a run needs.
$(TOOLS)/.ready: .ci/tools.txt
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -c .ci/tools.txt cyclonedx-bom pip-audit
	touch $@

# A list of all parts (CycloneDX).
sbom: $(READY) $(TOOLS)/.ready
	$(TOOLS)/bin/cyclonedx-py environment --of JSON -o sbom.json $(BIN)/python

# Known flaws in them. Error 1: there are some; 3: no advisory source is at hand. (make itself ends with 2 in both cases.)
audit-deps: $(READY) $(TOOLS)/.ready
	$(BIN)/python .ci/audit_deps.py $(TOOLS)/bin/pip-audit "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

clean:
	rm -rf $(VENV) $(TOOLS) site .pytest_cache .mypy_cache .ruff_cache
