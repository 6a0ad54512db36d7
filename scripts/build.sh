#!/usr/bin/env bash
# Builds bin/rewardloop. VERSION and REVISION are what it says of itself; by default git's name of the commit and its sum.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
commit=${REVISION:-$(git rev-parse HEAD 2>/dev/null || true)}
# Without symbols and debug information, which stack traces and profiles do not need, the file has
# two thirds of its size.
$GO build -trimpath -tags "$(scripts/tags.sh)" -ldflags "-s -w -X main.version=$version -X main.commit=$commit" -o bin/rewardloop ./cmd/rewardloop
