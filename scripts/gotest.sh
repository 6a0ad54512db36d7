#!/usr/bin/env bash
# gotest.sh [-C FOLDER] [flags of go test] [-- packages]: the Go tests of the module of
# FOLDER, by default the root, shuffled, all of them unless packages are named. The output
# ends with every skip and its reason, every failure, and the counts. A run without a test
# fails. -race is dropped, loudly, where there is no C compiler. With -short the skips are
# only counted, and a result is taken from go's cache until a file of the module changes that
# the test reads; not in tools, whose tests read files of the root.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export REWARDLOOP_STORE=off # Servers of tests keep nothing where the user's do.

folder=.
if [ "${1:-}" = -C ]; then
	folder=$2
	shift 2
fi
flags=(-tags "$(scripts/tags.sh)")
summary=(--format pkgname --format-icons text --no-color)
short=
if [[ " $* " == *" -short "* ]]; then
	short=1
	summary+=(--hide-summary skipped)
fi
if [ -z "$short" ] || [ "$folder" != . ]; then flags+=(-shuffle=on -count=1); fi
packages=(./...)
while [ $# -gt 0 ]; do
	flag=$1
	shift
	if [ "$flag" = -- ]; then
		[ $# = 0 ] || packages=("$@")
		break
	fi
	if [ "$flag" = -race ] && { [ "$($GO env CGO_ENABLED)" != 1 ] || ! have "$($GO env CC | cut -d' ' -f1)"; }; then
		warn "no C compiler for cgo: testing WITHOUT the race detector"
		continue
	fi
	flags+=("$flag")
done

use_models
if [ -x .venv/bin/python ]; then export REWARDLOOP_PYTHON=$PWD/.venv/bin/python; fi

# Of the module tools, at the version of its go.mod.
gotestsum=$($GO -C tools tool -n gotestsum) || die "gotestsum could not be built"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cd "$folder"
# ended leaves out the tests that had merely not ended when their package's binary panicked or ran
# out of time: gotestsum lists each of them as "(unknown)". Those with something to say stay: the
# panic, what was running, an error, a race.
ended() {
	awk '
		function close_one() {
			if (held != "" && !tells) hidden[package]++
			else printf "%s", held
			held = ""; tells = 0
		}
		/^=== (FAIL|SKIP|Failed|Skipped|Errors)/ || /^DONE / { close_one() }
		/^=== FAIL: .* \(unknown\)$/ { held = $0 "\n"; package = $3; next }
		held != "" {
			held = held $0 "\n"
			if ($0 ~ /panic:|running tests:|Error Trace:|DATA RACE|SIG[A-Z]+:/) tells = 1
			next
		}
		/^DONE / { for (p in hidden) printf "=== FAIL: %s: %d more tests had not ended when its program did\n\n", p, hidden[p] }
		{ print; fflush() }
		END { close_one() }'
}

# It ends with the status of go test; pipefail hands that on.
"$gotestsum" "${summary[@]}" --raw-command -- $GO test -json "${flags[@]}" "${packages[@]}" | ended | tee "$log"
if grep -q '^DONE 0 tests' "$log"; then die "no test was run"; fi
