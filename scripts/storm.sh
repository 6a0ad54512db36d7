#!/usr/bin/env bash
# The tests that take long: make test runs a tenth of each.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/build.sh
scripts/ort.sh
scripts/models.sh
use_models
export REWARDLOOP_STORM=full REQUIRE_ORT=1
tests() { $GO test -tags "$(scripts/tags.sh)" -count=1 -v -timeout=60m "$@"; }
tests -race -run 'OneResultEach' ./node
# The detector of races would be most of what is measured here.
tests -run 'MemoryStays' ./node
