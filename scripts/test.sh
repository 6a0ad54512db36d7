#!/usr/bin/env bash
# What `make test` and CI check, in the order of their cost. A failed step does not hide
# the ones after it. The output ends with the last lines of the step that failed first and
# the names of all steps that failed; the whole output of step N is .cache/test/N.log.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export REWARDLOOP_STORE=off # Servers of tests keep nothing where the user's do.

logs=.cache/test
rm -rf "$logs"
mkdir -p "$logs"
steps=0
failed=() # names of the steps that failed, in their order
first=    # the log of the first of them
step() {
	local name=$1 log=$logs/$((++steps)).log
	shift
	say "$name"
	if "$@" 2>&1 | tee "$log"; then return 0; fi
	say "FAILED: $name"
	failed+=("$name")
	first=${first:-$log}
}

gofmt_check() {
	local unformatted
	unformatted=$(go_files | xargs -0r gofmt -l)
	[ -z "$unformatted" ] || {
		printf 'not formatted (make fmt):\n%s\n' "$unformatted"
		return 1
	}
}

scripts_check() {
	local script
	for script in .ci/run scripts/*.sh; do bash -n "$script" || return 1; done
}

build_binary() {
	[ -d cmd/rewardloop ] || return 0
	scripts/build.sh
}

# What runs models, for the tests that do. Without it they skip, and that would
# look like a pass: so its lack is a failure, unless REQUIRE_ORT=0 says otherwise.
real_models() { scripts/ort.sh && scripts/models.sh; }

# What deploy/ ships, the documents, the import graph, the scripts, the licences: files, held
# to the binary just built. Without the race detector, under which Kubernetes' types take
# minutes to compile and loading the import graph takes twice as long.
files=(deploycheck architecture documents docscheck licences scripts)
files_tests() {
	REWARDLOOP_BIN=$PWD/bin/rewardloop scripts/gotest.sh -C tools -vet=off -timeout=10m -- "${files[@]/#/./}"
}

# The rest of tools/: the bench, and what makes the bundle for a card.
tools_tests() {
	local packages
	mapfile -t packages < <($GO list -C tools -tags "$tags" ./... | grep -vE "/tools/($(IFS='|' && echo "${files[*]}"))\$")
	scripts/gotest.sh -C tools -race -vet=off -timeout=15m -- "${packages[@]}"
}

# Python's own tests, against the binary just built. unittest calls a run
# without any test a success; we do not.
python_tests() {
	[ -d python/tests ] || return 0
	if [ ! -x .venv/bin/python ]; then
		warn "SKIPPED: python/tests, there is no .venv"
		return 0
	fi
	local log=.cache/python-tests.log
	mkdir -p .cache
	REWARDLOOP_BIN=$PWD/bin/rewardloop REWARDLOOP_PYTHON=$PWD/.venv/bin/python PYTHONPATH=python \
		within 600 .venv/bin/python -m unittest discover -v -s python/tests -t python >"$log" 2>&1 || {
		sed -n '/^=====/,$p' "$log"
		warn "Python tests failed, or took longer than ten minutes: see $log"
		return 1
	}
	tail -n 3 "$log"
	# A skip that nobody sees looks like a pass.
	sed -n "s/.*skipped ['\"]\(.*\)['\"]$/\1/p" "$log" | sort | uniq -c | sed 's/^/      /'
	if grep -q '^Ran 0 tests' "$log"; then
		warn "python/tests holds no test that unittest finds"
		return 1
	fi
}

cards() {
	# The driver's header marks functions as deprecated: a warning for each of them hides the outcome.
	CGO_CFLAGS="$($GO env CGO_CFLAGS) -Wno-deprecated-declarations" $GO test -count=1 -tags nvml ./pool/cards || return
	local packages
	mapfile -t packages < <(gpu_tests | cut -d ' ' -f 1)
	$GO vet -tags gpu "${packages[@]/#/./}"
}

need_disk
tags=$(scripts/tags.sh)
[[ $tags == *tesseract* ]] || warn "the headers of Tesseract are not here: the compiled-in OCR reader is not tested"

step "gofmt" gofmt_check
step "scripts parse" scripts_check
step "go vet (tags: ${tags:-none})" "$GO" vet -tags "$tags" ./...
step "go vet of tools" "$GO" -C tools vet -tags "$tags" ./...
step "go build of tools" "$GO" -C tools build ./...
step "bin/rewardloop" build_binary
if [ "${REQUIRE_ORT:-1}" = 0 ]; then
	say "ONNX Runtime and models, if they can be had (REQUIRE_ORT=0)"
	real_models || warn "SKIPPED: the tests that run models, for want of ONNX Runtime or of the models; REQUIRE_ORT=0 asked for it"
else
	export REQUIRE_ORT=1
	step "ONNX Runtime and models" real_models
	if [[ " ${failed[*]-} " == *" ONNX Runtime and models "* ]]; then
		warn "the tests that run models are skipped now, and this run has failed: without a network REQUIRE_ORT=0 make test passes without them"
		REQUIRE_ORT=0
	fi
fi
use_models
say "Prometheus, if it can be had"
scripts/prometheus.sh || warn "SKIPPED: the tests that run Prometheus and promtool"
step "go build without tags" "$GO" build ./...
step "go build with CGO_ENABLED=0" env CGO_ENABLED=0 "$GO" build ./...
step "go test of tools that read files" files_tests
step "Python tests" python_tests
# The race detector makes a history ten times dearer: under it some hundreds are run,
# here all of them. REWARDLOOP_SEEDS=<n> runs another number, REWARDLOOP_SEED=<n> one.
step "loop without the race detector, with 10,000 simulated histories" scripts/gotest.sh -vet=off -timeout=15m -- ./loop
# The same goes for the 56,000 encodings of real tokenizers, and for a text that a normal form blows up.
step "tokenizers" "$GO" test -vet=off -count=1 -run '^TestGolden|^TestANormalForm' ./internal/hftok
# What stands behind tags of its own: the driver's library, and the tests that need a card.
step "cards (tags: nvml, gpu)" cards
# Vetted above.
step "go test of the other tools" tools_tests
step "go test (tags: ${tags:-none})" scripts/gotest.sh -race -vet=off -timeout=15m

if [ ${#failed[@]} -gt 0 ]; then
	{
		say "what failed first: ${failed[0]}; its last lines, and all of it in $first:"
		tail -n 40 "$first" | sed 's/^/      /'
	} >&2
	printf '==> FAILED: %s\n' "${failed[@]}" >&2
	exit 1
fi
