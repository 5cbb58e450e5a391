# make run, make test; the rest is for people who work on the lab
PYTHON ?= python3
PORT ?= 8501
BIN := .venv/bin

.PHONY: run test lint bench check compat clean

run: .venv/installed
	PYTHONPATH=. $(BIN)/streamlit run lab/Home.py --server.port $(PORT)

test: lint browser
	$(BIN)/python -m pytest

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/oxlint --deny-warnings components

bench: .venv/installed-dev browser
	$(BIN)/python -m benchmarks

check: .venv/installed
	$(BIN)/python -m lab check

# lab check (3: nothing wrong, something not available) and all tests without a browser, on each release; COMPAT_ENVS: where environments are or go
RELEASES ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
COMPAT_ENVS ?= .compat
compat:
	@status=0; for release in $(RELEASES); do \
		place=$(COMPAT_ENVS)/$$release; log=$(COMPAT_ENVS)/$$release.log; mkdir -p $(COMPAT_ENVS); \
		if [ ! -x $$place/bin/pytest ]; then \
			$(PYTHON) -m venv $$place && grep -v '^torch==' requirements.txt > $$place/rest.txt && \
			grep -v '^-r' requirements-dev.txt >> $$place/rest.txt && \
			PIP_CONFIG_FILE=/dev/null $$place/bin/python -m pip install -q torch==$$release -r $$place/rest.txt \
			|| { echo "torch $$release: not installed"; status=1; continue; }; \
		fi; \
		$$place/bin/python -m lab check > $$log 2>&1; checked=$$?; \
		said=$$(grep '^torch .* hold, ' $$log | tail -n 1); \
		$$place/bin/python -m pytest -q -p no:cacheprovider tests/lab tests/test_architecture.py >> $$log 2>&1; tested=$$?; \
		echo "$${said:-torch $$release: lab check ended early}; tests: $$(tail -n 1 $$log)"; \
		case $$checked in 0|3) ;; *) status=1;; esac; [ $$tested = 0 ] || status=1; \
	done; exit $$status

clean:
	rm -rf .venv .compat .pytest_cache .ruff_cache

.venv/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; set PYTHON=...")'
	$(PYTHON) -m venv .venv

.venv/installed: requirements.txt | .venv/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements-dev.txt
	touch $@

# the browser tests drive a Chromium of the system
.PHONY: browser
browser:
	@command -v chromium >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; \
	else \
		echo "The browser tests need Chromium: install it so that 'chromium' is on PATH (Debian, Ubuntu: sudo apt-get install chromium)."; exit 1; \
	fi
