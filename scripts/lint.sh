#!/usr/bin/env bash
# Runs golangci-lint at the pinned version, and shellcheck where it is
# installed. The linter is built from source into .tools on first use.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. scripts/tools.sh

if [ ! -x "$GOLANGCI_LINT" ]; then
	say "building golangci-lint $GOLANGCI_LINT_VERSION into .tools: about 150 MB of modules and 5 to 8 minutes on 2 cores; GPL-3.0, a tool, not part of the program"
	GOBIN=${GOLANGCI_LINT%/*} $GO install \
		"github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$GOLANGCI_LINT_VERSION" ||
		die "golangci-lint could not be built"
fi
say "golangci-lint"
tags=$(scripts/tags.sh)
for module in . tools; do (cd "$module" && "$GOLANGCI_LINT" run --build-tags "$tags" ./...); done
if have shellcheck; then
	say "shellcheck"
	shellcheck -x -P scripts .ci/run scripts/*.sh
else
	warn "shellcheck is not installed: the scripts are not linted"
fi
