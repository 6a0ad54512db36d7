#!/usr/bin/env bash
# Formats every Go file in place: gofmt always, gofumpt and the import order
# where the linter, which contains them, has been built.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. scripts/tools.sh

go_files | xargs -0r gofmt -s -w
if [ -x "$GOLANGCI_LINT" ]; then
	for module in . tools; do (cd "$module" && "$GOLANGCI_LINT" fmt ./...); done
else
	warn "gofmt only: make lint builds the tool that also orders imports"
fi
