# Two commands do everything on a fresh Debian 12 machine with Go, make, gcc
# and Python 3:
#
#   make demo    build and watch it work
#   make test    what CI runs
#
# Apart from Debian packages and the caches of Go and pip everything they
# create lies below this clone (bin out .cache .venv .tools); clean-all removes
# it. As root missing Debian packages are installed with apt, the line printed
# first; INSTALL=0 forbids that. As another user the line is only printed, and
# what is optional is left out. A second run needs no network.
#
# make demo needs nothing of root where Python has venv or pip: it reads text with
# PP-OCR, whose models and runtime come with pip. make test wants them, and
# Tesseract too; REQUIRE_ORT=0 make test goes on without them.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO         ?= go
PYTHON     ?= python3
# 0: never call apt.
INSTALL    ?= 1
# make fuzz: time for each target.
FUZZTIME   ?= 15s
# make race: how often each test runs, and of which packages.
COUNT      ?= 5
PACKAGES   ?= ./...
# Flags handed on, e.g. make bench BENCHFLAGS=-h.
DEMOFLAGS  ?=
# make demo: 1 keeps its server up until Ctrl-C.
STAY       ?= 0
BENCHFLAGS ?=
# make gpu-results: what scripts/gpu-run.sh has left.
FROM       ?= gpu-results/gpu.json

# One OpenMP thread for each Tesseract call: the concurrency is ours.
export OMP_THREAD_LIMIT := 1
export PYTHONDONTWRITEBYTECODE := 1
export GO PYTHON INSTALL FUZZTIME COUNT VERSION REVISION STAY
# Models lie in the clone, unless the environment names a folder.
export REWARDLOOP_MODELS ?= $(CURDIR)/.cache/models
# Servers of tests and tools keep no results in the user's folder.
export REWARDLOOP_STORE ?= off

.PHONY: help demo release release-check unit test race storm test-gpu test-fault test-replay test-verl test-clients test-ray test-web web web-shots test-pymodels test-engines test-learn learn docs-check newcomer vuln lint fmt bench bench-ocr bench-python bench-onnx bench-step bench-isolation bench-bombs bench-capacity bench-queue bench-store bench-pymodels bench-gpu gpu-bundle gpu-bundle-check gpu-results soak golden-vlm fuzz build ort models prometheus check deps docker-check clean-all test-trainers

help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## build, run the main job on real input and say what it showed (out/demo); STAY=1: the server stays up until Ctrl-C
	@scripts/demo.sh $(DEMOFLAGS)

unit: ## the Go tests without processes, models and networks, in two minutes; PACKAGES=./loop: of one package
	@scripts/deps.sh debian go
	@scripts/unit.sh $(PACKAGES)

test: ## everything CI checks: format, vet, three builds, Python tests, go test -race
	@scripts/deps.sh debian go python
	@scripts/test.sh

race: ## Go tests COUNT times (5) under the race detector, shuffled; PACKAGES="./loop ./workers": of these
	@scripts/deps.sh debian go python
	@scripts/gotest.sh -race -count=$(COUNT) -timeout=$$((COUNT * 15))m -- $(PACKAGES)

storm: ## children die every second over 5,300 samples; memory over 10,000 pictures (a quarter of an hour)
	@scripts/deps.sh debian pip go
	@scripts/storm.sh

test-gpu: ## the tests that need an NVIDIA card, where there is one
	@scripts/deps.sh compiler go
	@scripts/test-gpu.sh

test-fault: ## real processes killed, stopped, cut off and restarted under load; root for the network (six minutes), and ten minutes of use; REWARDLOOP_RESULTS=1 writes docs/results/faults.md
	@scripts/deps.sh debian go
	@scripts/test-fault.sh

test-replay: ## 102,000 kept rewards scored again with another concurrency, the same to the last bit (half an hour)
	@scripts/deps.sh debian pip go
	@scripts/test-replay.sh

test-verl: build ## the plug-ins with the real verl, in .cache/verl (5 GB to download); verl-omni by REWARDLOOP_VERL_OMNI, flow_grpo's loop by REWARDLOOP_FLOW_GRPO
	@scripts/test-verl.sh

test-clients: build ## unmodified clients of other trainers against a server, in .cache/clients (37 MB to download)
	@scripts/test-clients.sh

test-trainers: build ## rewards of the loop called by the code of TRL (48 updates on the CPU), ms-swift, OpenRLHF, AReaL, SkyRL, UniRL; others by REWARDLOOP_CHECKOUTS; 10 MB beside .cache/verl
	@scripts/test-trainers.sh

test-web: ## the status page: dist is what the source builds to, unit tests, every view in Chromium at two widths; REWARDLOOP_WEB_URL walks through a server that runs
	@scripts/test-web.sh

web: ## web/dist, the status page, built from web/src with npm's packages in .cache/web; it is committed
	@scripts/web.sh build

web-shots: ## pictures of every view of the status page, into out/web
	@scripts/web.sh shots

test-ray: build ## workers on a real Ray cluster of two nodes here, in .cache/ray (96 MB to download)
	@scripts/test-ray.sh

test-pymodels: build ## models in Python with torch and transformers, in .cache/pymodels (4.7 GB to download, 8 GB on disk, half an hour)
	@scripts/deps.sh go pip
	@scripts/ort.sh
	@scripts/test-pymodels.sh

test-engines: build ## real engines (vLLM for CPUs, transformers serve) that serve starts, in .cache/engines (5.9 GB on disk, 25 minutes)
	@scripts/deps.sh go
	@scripts/test-engines.sh

test-learn: build ## three minutes of FlowGRPO through a server: it learns, and the same weights however rewards come; .cache/learn (165 MB to download)
	@scripts/learn.sh check

learn: build ## FlowGRPO through a server, every experiment of examples/learn (half an hour to an hour): curves, pictures and .cache/learn/all/report.html; REWARDLOOP_RESULTS=1 writes docs/results/learn.json
	@scripts/learn.sh all

docs-check: ## the commands, snippets and links of README.md and docs/; ONLINE=1 follows links to other sites
	@scripts/deps.sh debian go python
	@scripts/docs-check.sh

newcomer: ## the patches of tools/newcomer (a scorer, a policy, a message, a protocol, a key, a metric): each applied to a copy, tested, taken back
	@scripts/deps.sh compiler go
	@scripts/newcomer.sh

vuln: ## govulncheck at its pinned version, built into .tools on first use; skipped where its database cannot be reached
	@scripts/deps.sh compiler go
	@scripts/vuln.sh

lint: ## golangci-lint at its pinned version, built into .tools on first use
	@scripts/deps.sh debian go
	@scripts/lint.sh

fmt: ## gofmt every Go file, and gofumpt and import order where make lint has been run
	@scripts/fmt.sh

bench: ## measure every promised figure; fails on a miss that tools/bench/misses.yml does not list
	@scripts/deps.sh debian go
	scripts/tool.sh bench $(BENCHFLAGS)

bench-ocr: build ort models ## read pictures with PP-OCR here and with RapidOCR in Python, and compare texts and times
	tools/bench/ocr/venv.sh
	scripts/tool.sh bench/ocr $(BENCHFLAGS)

bench-python: build ## the figures of the Python client and of reward functions in Python, into docs/results
	@scripts/deps.sh python
	REWARDLOOP_PYTHON=$${REWARDLOOP_PYTHON:-$(CURDIR)/.venv/bin/python} scripts/tool.sh bench -suite python $(BENCHFLAGS)

bench-onnx: build ort ## ONNX reward models beside transformers and ONNX Runtime in Python, and the tokenizers, into docs/results (8 GB to download)
	@scripts/golden-vlm.sh --environment
	@scripts/bench-onnx.sh $(BENCHFLAGS)

bench-step: ## the async_reward_agent experiment at 1:10, dispatch at 90 % load, into docs/results (half an hour); BENCHFLAGS="-scale 100" for a quick look
	@scripts/deps.sh debian go
	scripts/tool.sh bench -suite step -n 1 $(BENCHFLAGS)
	scripts/tool.sh bench -suite dispatch -n 5 $(BENCHFLAGS)

bench-isolation: build ## the program beside rewards that raise, crash, hang, are cancelled or wait for an engine that is down, functions and models, into docs/results (three hours); BENCHFLAGS="-rows embedded-raises/ -t 5s" for one case
	@scripts/deps.sh python
	REWARDLOOP_PYTHON=$${REWARDLOOP_PYTHON:-$(CURDIR)/.venv/bin/python} scripts/tool.sh bench -suite isolation -n 3 -t 20s $(BENCHFLAGS)

bench-bombs: build ## the program beside pictures that are small as files and large as work, into docs/results (quarter of an hour)
	@scripts/deps.sh python
	REWARDLOOP_PYTHON=$${REWARDLOOP_PYTHON:-$(CURDIR)/.venv/bin/python} scripts/tool.sh bench -suite bombs -n 3 -t 20s $(BENCHFLAGS)

bench-capacity: build ort models ## calls under way at a time, weights, and an engine that goes away for three minutes, into docs/results (half an hour); BENCHFLAGS="-rows mixed/ -t 5s" for one case
	@scripts/deps.sh python
	REWARDLOOP_PYTHON=$${REWARDLOOP_PYTHON:-$(CURDIR)/.venv/bin/python} scripts/tool.sh bench -suite capacity -n 3 -t 20s $(BENCHFLAGS)

bench-queue: build ## what a hundred idle workers of a hundred profiles cost the broker and the gateway, and 25,600 leases the broker, into docs/results (five minutes)
	scripts/tool.sh bench -suite queue -n 3 -t 20s $(BENCHFLAGS)

bench-store: build ## a server that keeps results beside one that does not, texts and pictures, into docs/results (five minutes)
	scripts/tool.sh bench -suite store -n 5 -t 12s $(BENCHFLAGS)

bench-pymodels: build ## models in Python in batches beside the same models alone, into docs/results (ten minutes); torch: make test-pymodels first; BENCHFLAGS="-rows trickle/ -t 5s" for one case
	@scripts/deps.sh python
	REWARDLOOP_PYTHON=$${REWARDLOOP_PYTHON:-$(CURDIR)/.venv/bin/python} env -u OMP_THREAD_LIMIT scripts/tool.sh bench -suite pymodels -n 3 -t 20s $(BENCHFLAGS)

bench-gpu: ## models of real sizes on a card beside bare ONNX Runtime, memory, two models, kill -9, into docs/results (five minutes); BENCHFLAGS="-device cpu" for the small form without a card
	@scripts/deps.sh compiler pip go
	@scripts/bench-gpu.sh $(BENCHFLAGS)

gpu-bundle: ## all that test-gpu and bench-gpu need, in parts of 24 MiB below out/gpu-bundle; TARGET=driver brings CUDA's libraries (1 GB); ARCH=sm_90
	@scripts/deps.sh compiler pip go
	@scripts/gpu-bundle.sh

gpu-bundle-check: ## a bundle in an empty root without a network, where it tests the CPU (five minutes; root for the empty root)
	@scripts/deps.sh compiler pip go
	@scripts/gpu-bundle-check.sh

gpu-results: ## docs/results/gpu.md of what a run with a bundle has left; FROM=gpu-results/gpu.json
	@scripts/tool.sh bench -card-results "$(FROM)"

soak: build ## the program for an hour at half of its throughput: memory, descriptors and goroutines, into docs/results; BENCHFLAGS="-t 10m" for a look
	scripts/tool.sh bench -suite soak -n 1 -t 60m $(BENCHFLAGS)

golden-vlm: ort ## the tiny ONNX models and what they are compared with, made anew in Python (8 GB to download), and the tests on them
	@scripts/golden-vlm.sh

fuzz: ## every fuzz target for FUZZTIME (15s)
	@scripts/deps.sh debian go
	@scripts/fuzz.sh

build: ## bin/rewardloop, with Tesseract compiled in where its headers are
	@scripts/deps.sh debian modules
	@scripts/build.sh

ort: ## ONNX Runtime, which runs the models, into .cache/ort
	@scripts/deps.sh pip
	@scripts/ort.sh

models: ## the models that read text, into .cache/models
	@scripts/deps.sh compiler pip go
	@scripts/build.sh
	@scripts/models.sh

prometheus: ## Prometheus and promtool, which check what deploy/ has for them, into .cache/prometheus (19 MB to download, Debian)
	@scripts/prometheus.sh

check: ## all of it: lint, what CI runs (test: vet, import graph, Go tests under the race detector), docs-check, vuln
	@scripts/deps.sh debian go python
	@scripts/check.sh

deps: ## the set-up alone: Debian packages, Go modules, Python environment
	@scripts/deps.sh debian go python

release: ## wheels, tarballs, Debian packages, what is in them and their sums, into dist/ (ten minutes), and the image where docker with buildx is; ARCHES=amd64 for one processor, IMAGE=off for no image
	@scripts/deps.sh pip go
	@scripts/release.sh

release-check: ## install what `make release` built into an empty Debian without a compiler and a network, and score there; the image: make docker-check (root only)
	@scripts/release-check.sh

docker-check: ## build every stage of the Dockerfile without a Docker engine and score with the image (root only)
	@scripts/docker-check.sh

clean-all: ## remove everything make created below this clone
	@scripts/clean-all.sh
