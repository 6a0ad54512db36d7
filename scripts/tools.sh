# shellcheck shell=bash
# Sourced: the tools that make builds below .tools, and their versions.

# shellcheck disable=SC2034 # Used by those who source this.
GOLANGCI_LINT_VERSION=v2.15.0
# shellcheck disable=SC2034
GOLANGCI_LINT=$PWD/.tools/golangci-lint-$GOLANGCI_LINT_VERSION/golangci-lint
# Its cache, too, stays below the clone.
export GOLANGCI_LINT_CACHE=$PWD/.cache/golangci-lint

# The newest whose modules the module proxy has all of: it refuses one of v1.9.0's.
# shellcheck disable=SC2034
GOVULNCHECK_VERSION=v1.8.0
# shellcheck disable=SC2034
GOVULNCHECK=.tools/govulncheck-$GOVULNCHECK_VERSION/govulncheck
