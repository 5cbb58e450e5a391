# make run, make test; the rest is for people who work on the lab
PYTHON ?= python3
PORT ?= 8501
BIN := .venv/bin

.PHONY: run test lint bench check clean

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

clean:
	rm -rf .venv .pytest_cache .ruff_cache

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
