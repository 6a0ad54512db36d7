#!/usr/bin/env bash
# test-fault.sh [flags of go test]: the tests behind the tag fault: real processes that
# are killed, stopped, cut off and restarted under load. Network faults take root and
# are skipped, with the reason, where the machine cannot make them.
# REWARDLOOP_RESULTS=1 writes docs/results/faults.md. Then ten minutes of use, after which
# what collections find reachable, descriptors and goroutines are what they were before.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export REWARDLOOP_STORE=off # Servers of tests keep nothing where the user's do.

tags=$(scripts/tags.sh)
tags=${tags:+$tags,}fault
$GO vet -tags "$tags" ./cmd/rewardloop
$GO test -tags "$tags" -count=1 -v -timeout=30m -run '^TestNoFault' "$@" ./cmd/rewardloop
scripts/build.sh
scripts/tool.sh bench -suite soak -rows '^soak/(live_heap|descriptors|goroutines|unscored)' -n 1 -t "${SOAK:-10m}"
