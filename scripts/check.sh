#!/usr/bin/env bash
# What `make check` does, part by part. A part that fails does not hide those after
# it; each part's name, outcome and time close the output. What each part covers:
#
#   lint             golangci-lint (format, imports, corners of dependencies), shellcheck
#   test             what CI runs: gofmt, vet, the builds, the import graph
#                    (tools/architecture), Python's tests, every Go test under the race
#                    detector. None of these is run a second time
#   newcomer         the patches of tools/newcomer: a scorer, a policy, a message, a protocol,
#                    a key, a metric, each applied, tested and taken back
#   docs-check       commands, snippets and links of README.md and docs/
#   vulnerabilities  govulncheck
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

logs=.cache/check
mkdir -p "$logs"
failed=0
summary=()

# part NAME COMMAND... runs it, shows what it says and keeps it.
part() {
	local name=$1 log=$logs/$1.log outcome=passed began=$SECONDS took note
	shift
	say "check: $name"
	if ! "$@" 2>&1 | tee "$log"; then
		outcome=FAILED
		failed=1
	fi
	took=$((SECONDS - began))
	# Something that was skipped must not look like something that passed.
	note=$(grep -c 'NOTE: SKIPPED\|NOTE: .*WITHOUT' "$log") || true
	[ "$note" = 0 ] || outcome="$outcome, with something SKIPPED: $log"
	summary+=("$(printf '%-16s %2d:%02d  %s' "$name" $((took / 60)) $((took % 60)) "$outcome")")
}

part lint scripts/lint.sh
part test scripts/test.sh
part newcomer scripts/newcomer.sh
part docs-check scripts/docs-check.sh
part vulnerabilities scripts/vuln.sh

say "make check"
printf '      %s\n' "${summary[@]}"
[ "$failed" = 0 ] || die "make check failed"
