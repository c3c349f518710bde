# The course's commands; `make help` lists them. Everything is made inside this folder: the Python
# environment in .venv, page scripts in _vendor, the book in _build. `make clean` removes all three.

PYTHON ?= python3
PORT ?= 8000
HERE := .venv/bin/python
PIP := $(HERE) -m pip install -q --disable-pip-version-check
SOURCES := _config.yml _toc.yml index.md $(wildcard *.md LICENSE*) $(shell find book notebooks lmcourse -type f -not -name '*.pyc')
PACKAGE := pyproject.toml requirements.txt requirements-alone.txt book/requirements.txt

.DELETE_ON_ERROR:
.PHONY: help book serve test notebooks bench colab xla linkcheck repository chapter clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-17s %s\n", $$1, $$2 }'

book: _build/html/.built  ## build the book: half a minute and 0.3 GB at first (no torch), seconds afterwards
	@echo "The book is at _build/html/index.html (make serve shows it)."

serve: book  ## build the book and show it on this machine only; PORT=8000
	$(HERE) -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

test: book .venv/.test  ## every test: 20 minutes at most, and 2 GB at first (torch; more with NVIDIA libraries)
	$(HERE) -m pytest tests
	OMP_NUM_THREADS=1 $(HERE) -m pytest --nbval -n 2 --dist loadfile notebooks  # two at once, a core for each

notebooks: .venv/.test  ## run the notebooks again and write outputs, seconds, memory; SLUG=one-of-them
	$(HERE) tools/execute.py $(SLUG)

bench: .venv/.bench  ## speed beside other libraries; writes benchmarks/results/, 10 minutes or so
	$(HERE) benchmarks/run.py

colab: .venv/.test  ## the notebooks under Colab's versions of Python, torch and numpy
	$(HERE) tools/colab.py $(SLUG)

xla: .venv/bin/python  ## training on XLA, which a TPU needs: torch_xla on the processor; 2 GB at first, 3 minutes
	$(HERE) tools/xla.py

linkcheck: .venv/.book _vendor/assets.json  ## every link of the book to another host; needs the network
	.venv/bin/jupyter-book build -q --builder linkcheck --path-output _build/links .

repository: .venv/.book  ## after a fork: write its address everywhere; URL=https://github.com/you/yours
	$(HERE) tools/repository.py $(URL)

chapter: .venv/.book  ## lay out the files of a new chapter and its notebook; SLUG=its-name
	$(HERE) tools/new_chapter.py $(SLUG)

clean:  ## remove .venv, _vendor and _build
	rm -rf .venv _vendor _build

# Built whole whenever a source is newer: a partial build would not repeat the warnings of unchanged pages.
_build/html/.built: $(SOURCES) _vendor/assets.json
	@rm -rf _build/.doctrees
	@.venv/bin/jupyter-book build -q -W -n --keep-going --all . || { echo "The book was not built: correct the warnings above, then run make book again."; exit 1; }
	@touch $@

_vendor/assets.json: book/assets.json tools/assets.py .venv/.book
	@$(HERE) tools/assets.py && touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "The course needs Python 3.11 or newer, and '$(PYTHON)' is not. Install one, then name it: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make an environment. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

.venv/.book: book/requirements.txt | .venv/bin/python
	@$(PIP) -r $< || { $(SAY_PIP); exit 1; }
	@touch $@

.venv/.test: $(PACKAGE) .venv/.book
	@$(PIP) -r requirements.txt || { $(SAY_PIP); exit 1; }
	@$(PIP) --no-deps -r requirements-alone.txt || { $(SAY_PIP); exit 1; }
	@$(PIP) --no-deps -e . || { $(SAY_PIP); exit 1; }
	@touch $@

.venv/.bench: benchmarks/requirements.txt benchmarks/requirements-alone.txt .venv/.test
	@$(PIP) -r $< -c requirements.txt || { $(SAY_PIP); exit 1; }
	@$(PIP) --no-deps -r benchmarks/requirements-alone.txt || { $(SAY_PIP); exit 1; }
	@touch $@

SAY_PIP = echo "pip could not install the packages above. Check the network connection and free disk space, then run make again."
