#!/usr/bin/env bash
# 100,000 rewards of texts and of JPEG sizes and 2,000 of texts in pictures, kept by a server,
# and scored again with another concurrency: the same to the last bit. make test has a few of
# each. Prints how long both took. TMPDIR needs 2 GB.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/build.sh
scripts/ort.sh
scripts/models.sh
use_models
export REWARDLOOP_REPLAY=full REQUIRE_ORT=1
$GO test -tags "$(scripts/tags.sh)" -count=1 -v -parallel=1 -timeout=120m -run 'ToTheLastBit$' "$@" ./cmd/rewardloop
