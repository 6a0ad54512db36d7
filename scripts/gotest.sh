#!/usr/bin/env bash
# gotest.sh [flags of go test] [-- packages]: the Go tests, shuffled, all of them
# unless packages are named, with every skip and its reason in the summary. -race is
# dropped, loudly, where there is no C compiler.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

flags=(-tags "$(scripts/tags.sh)" -shuffle=on -count=1)
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

# The summary is a program of its own, built first so that its compile errors
# are not taken for those of the tests.
summary=.cache/testsum
$GO build -o "$summary" ./scripts/testsum
# go test exits with 1 for a failed test; pipefail hands that on.
$GO test -json "${flags[@]}" "${packages[@]}" | "$summary"
