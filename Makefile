# Everything an operator or a developer runs. Each target installs what it needs, once: a second run fetches nothing.
# `make` alone prints the targets.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# make's stamps: npm's own record of what it installed, and the program's entry file.
PACKAGES := node_modules/.package-lock.json
PROGRAM := dist/main.js
# Bundles the program and the packages that it imports into a few files.
BUNDLER := .build/bundle.mjs
# Makes the client that the package exports, of the OpenAPI document.
CLIENT := .build/client.mjs
PAGES_BUNDLER := .build/console.mjs
# Finds discouraged words; `node .build/words.mjs --lower` lowers the accepted numbers.
WORDS := .build/words.mjs
# Folders too: one's time changes when a file in it goes.
SOURCES := $(shell find src)

# What the formatter lays out.
CODE := 'src/**/*.ts' 'src/**/*.tsx' 'test/**/*.ts' 'test/**/*.mjs' '.build/*.mjs'

# The data folder of a service that make starts.
DATA := $(or $(TRIBUTARY_DATA_DIR),data)

SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync)

EVENTS ?=
VITEST := node node_modules/vitest/vitest.mjs run --config test/vitest.config.ts
# `make check ROOM=lake` looks at src/lake and its unit tests alone.
ROOM ?=
ROOM_TESTS = $(wildcard test/unit/$(ROOM))
# `make chaos PART=kills SEED=7 KILLS=50` repeats one part of the long form: a file of test/chaos, with its seed and figure.
PART ?=
KILLS ?=
SEED ?=
MINUTES ?=
NODES ?=

##@ To begin with

demo: build ## the main job from end to end on a short-lived service; EVENTS=file.ndjson.gz imports a file
	@node $(PROGRAM) demo $(if $(EVENTS),--events '$(EVENTS)')

test: static ## lint, types and the tests
	$(VITEST)

ifeq ($(ROOM),)
check: static ## the inner loop: lint, types and the unit tests, in a minute; ROOM=lake, a folder of src, in seconds
	$(VITEST) unit mutants
else
# The unit tests of a room run its sources. The program is built only if there is none.
check: $(PACKAGES)
	@test -d 'src/$(ROOM)' || { echo 'make check: src/$(ROOM) is not a folder: name one, as in make check ROOM=lake' >&2; exit 1; }
	@test -f $(PROGRAM) || $(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory --jobs=3 $(SYNC) room-rules room-layout room-types
	$(if $(ROOM_TESTS),$(VITEST) $(ROOM_TESTS))
endif

##@ Running it

start: build ## the service on ./data until it is stopped; TRIBUTARY_... settings in the environment
	@exec node $(PROGRAM) start

# A service that runs already keeps its folder, and the second one ends at once. A shell that waited for init alone, as
# for its last command, would leave the other to nobody.
init: build ## the service in the background on ./data, a first app and user, and a profile; SAMPLE=1 adds generated events
	@(umask 077; mkdir -p '$(DATA)'); nohup node $(PROGRAM) start </dev/null >>'$(DATA)/service.log' 2>&1 & \
	  node $(PROGRAM) init $(if $(SAMPLE),--sample) --wait --started $$! --log '$(DATA)/service.log' || exit $$?

stop: build ## ends the service on ./data, and waits until it has ended
	@node $(PROGRAM) stop

build: $(PROGRAM) $(PACKAGES) nats-server ## everything needed to run the program: packages, nats-server, dist

##@ Longer runs

# What measures time runs alone: the projects of the configuration ignore --maxWorkers. The second half runs also after a
# failure in the first.
chaos: export TRIBUTARY_CHAOS = long
chaos: export TRIBUTARY_TEST_SEED = $(SEED)
chaos: export TRIBUTARY_TEST_KILLS = $(KILLS)
chaos: export TRIBUTARY_TEST_MINUTES = $(MINUTES)
chaos: build ## every promise shown by breaking things, at full length; PART=kills (a file of test/chaos), SEED=n
ifeq ($(PART),)
	status=0; \
	$(VITEST) chaos --exclude '**/timed/**' || status=1; \
	VITEST_MAX_WORKERS=1 $(VITEST) chaos/timed || status=1; \
	exit $$status
else
	$(VITEST) $(addprefix chaos/,$(PART))
endif
	@test ! -f data/chaos/report.md || cat data/chaos/report.md

bench: build ## throughput of import, compaction and export, as tables and as JSON
	TRIBUTARY_TEST_BENCH=1 $(VITEST) bench

bench-quick: build ## the same in two minutes, with fewer rows and one round
	TRIBUTARY_BENCH_QUICK=1 TRIBUTARY_TEST_BENCH=1 $(VITEST) bench

# A lake of the default size takes up to 52 GB of the checkout's disk until the end.
bench-year: export TRIBUTARY_BENCH_YEAR = $(or $(EVENTS),1e9)
bench-year: export TRIBUTARY_TEST_SEED = $(SEED)
bench-year: build ## a lake of a year and 1,000 apps next to one of a million events; EVENTS=100e6 instead of 1e9, SEED=n
	TRIBUTARY_TEST_BENCH=1 $(VITEST) bench/year

mutants: build ## takes checks out of the sources one by one; a test has to notice each
	TRIBUTARY_TEST_MUTANTS=1 VITEST_MAX_WORKERS=1 $(VITEST) mutants

coverage: build ## unit tests with the coverage of each folder of src; reports in data/coverage
	TRIBUTARY_TEST_COVERAGE=1 TRIBUTARY_TEST_WHOLE=1 $(VITEST)

nightly: static ## every test, the coverage, then the long forms with hours of the simulator, and the benchmarks
	TRIBUTARY_TEST_OPERATIONS=all TRIBUTARY_TEST_IMPORT_SEEDS=600 TRIBUTARY_TEST_WHOLE=1 TRIBUTARY_TEST_HISTORY_DAYS=7305 TRIBUTARY_TEST_INSTALL=1 TRIBUTARY_TEST_CONSOLE=all $(VITEST) --exclude 'chaos/**'
	$(MAKE) coverage
	$(if $(NODES),$(MAKE) nodes)
	$(MAKE) mutants
	TRIBUTARY_TEST_SIMULATOR_SEEDS=6000 $(MAKE) chaos
	$(MAKE) bench

nodes: build ## unit, process and end-to-end tests on other Nodes; NODES='/opt/node-22/bin /opt/node-24/bin', the folders they are in
	@test -n '$(NODES)' || { echo "make nodes: name the folders of the Nodes, as in make nodes NODES='/opt/node-22/bin /opt/node-24/bin'" >&2; exit 1; }
	for folder in $(NODES); do PATH="$$folder:$$PATH" $(VITEST) unit integration/processes e2e || exit 1; done

##@ Pieces

docs: $(PACKAGES) ## writes docs/reference again, from the declarations in the code
	$(VITEST) unit/docs/reference --update

lint: rules words layout ## oxlint with type-aware rules, discouraged words, and the layout of the code

rules: $(PROGRAM)
	node node_modules/oxlint/bin/oxlint --type-aware --deny-warnings src test .build

words:
	node $(WORDS)

layout: $(PACKAGES)
	node node_modules/oxfmt/bin/oxfmt --check $(CODE)

format: $(PACKAGES) ## lays the code out as make lint wants it
	node node_modules/oxfmt/bin/oxfmt $(CODE)

room-rules:
	node node_modules/oxlint/bin/oxlint --type-aware --deny-warnings src/$(ROOM) $(ROOM_TESTS)
	node $(WORDS)

room-layout:
	node node_modules/oxfmt/bin/oxfmt --check src/$(ROOM) $(ROOM_TESTS)

room-types:
	node node_modules/typescript/bin/tsc -p $(if $(filter console/web%,$(ROOM)),src/console/web,test)/tsconfig.json

types: $(PROGRAM) ## tsc over sources and tests, and over the pages of the console
	node node_modules/typescript/bin/tsc -p test/tsconfig.json
	node node_modules/typescript/bin/tsc -p src/console/web/tsconfig.json

# Side by side: none of them uses all cores all of its time. The output of each comes in one piece, if make can do that.
static: build
	@$(MAKE) --no-print-directory --jobs=4 $(SYNC) rules words layout types

deb: build ## the package of Debian for this machine's architecture, in release/
	node .build/deb.mjs release

# The version is committed first, so that the build names its commit.
release: ## the files of a release in release/, and its commit and tag; VERSION=x.y.z
	@test -n '$(VERSION)' || { echo 'make release: pass the version, as in make release VERSION=1.2.3' >&2; exit 1; }
	@node .build/release.mjs prepare '$(VERSION)'
	@$(MAKE) --no-print-directory build
	rm -rf release && mkdir release
	npm pack --silent --pack-destination release
	node .build/deb.mjs release 'release/tributary-$(VERSION).tgz'
	$(if $(wildcard .build/sbom.mjs),node .build/sbom.mjs "$$(node $(PROGRAM) setup | sed -n 's/^nats-server \([0-9.]*\) .*/nats-server@\1/p')" > 'release/tributary-$(VERSION).cdx.json')
	@node .build/release.mjs describe release
	git tag 'v$(VERSION)'

clean: ## removes what make made here: node_modules, dist and release
	rm -rf node_modules dist dist.next release

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# npm ci starts from nothing, so a half-made node_modules does no harm; the stamp is the last file it writes.
$(PACKAGES): package-lock.json package.json | tools
	npm ci --include=dev
	@touch $@

# Built aside and swapped in, so that a removed source leaves nothing behind and a failed build leaves the old one.
$(PROGRAM): $(SOURCES) $(BUNDLER) $(PAGES_BUNDLER) $(CLIENT) $(PACKAGES)
	@rm -rf dist.next
	node $(BUNDLER) dist.next
	node $(CLIENT) dist.next
	@rm -rf dist && mv dist.next dist && touch $@

nats-server: $(PROGRAM)
	@node $(PROGRAM) setup

tools:
	@command -v node >/dev/null 2>&1 || { echo 'tributary needs Node.js 20.19 or newer, and there is no node on PATH: get it from https://nodejs.org.' >&2; exit 1; }
	@node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' || \
	  { echo "tributary needs Node.js 20.19 or newer, and this is $$(node --version): get a newer one from https://nodejs.org." >&2; exit 1; }
	@command -v npm >/dev/null 2>&1 || { echo 'tributary needs npm, and there is no npm on PATH: it comes with Node.js from https://nodejs.org, or as the package npm.' >&2; exit 1; }

.PHONY: demo test check format start init stop build chaos bench bench-quick bench-year mutants coverage nightly nodes docs deb release lint rules words layout types room-rules room-layout room-types static clean help nats-server tools
