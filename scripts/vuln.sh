#!/usr/bin/env bash
# Looks for known vulnerabilities in what the binary calls, with govulncheck at its
# pinned version, built from source into .tools on first use. A finding is a failure.
# Where the database cannot be reached nothing is known: SKIPPED, loudly.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. scripts/tools.sh

if [ ! -x "$GOVULNCHECK" ]; then
	say "building govulncheck $GOVULNCHECK_VERSION into .tools: about 15 MB of modules and a minute on 2 cores; BSD-3-Clause, a tool, not part of the program"
	GOBIN=$PWD/${GOVULNCHECK%/*} $GO install "golang.org/x/vuln/cmd/govulncheck@$GOVULNCHECK_VERSION" ||
		die "govulncheck could not be built"
fi

log=.cache/vuln.log
mkdir -p .cache
say "govulncheck"
status=0
within 300 "$GOVULNCHECK" -db "${GOVULNDB:-https://vuln.go.dev}" -tags "$(scripts/tags.sh)" ./... >"$log" 2>&1 || status=$?
cat "$log"
case $status in
0) ;;
3) die "govulncheck: vulnerabilities in what the binary calls, see above" ;;
*)
	grep -q '^govulncheck: fetching vulnerabilities: ' "$log" || die "govulncheck failed with status $status, see above"
	warn "SKIPPED: vulnerabilities, because their database cannot be reached; GOVULNDB names a mirror"
	;;
esac
