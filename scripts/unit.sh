#!/usr/bin/env bash
# unit.sh PACKAGE...: the tests of both modules that start no process, run no model, open no
# network and take no seconds; of the root's packages alone where some are named. What it
# leaves out is skipped where go test has -short.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

unset REQUIRE_ORT # With 1 no test of models is skipped.
scripts/gotest.sh -short -vet=off -timeout=5m -- "$@"
if [ "$*" = ./... ]; then scripts/gotest.sh -C tools -short -vet=off -timeout=5m; fi
