#!/usr/bin/env bash
# models.sh [NAME...]: brings models to .cache/models, or to REWARDLOOP_MODELS,
# with the rewardloop that was built before; the one that reads text if none is
# named. What is there already needs no network. MODELS_TIMEOUT bounds a download,
# in seconds.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || set -- ppocr-v4-mobile
use_models
[ -x bin/rewardloop ] || die "bin/rewardloop is not built: make build"

options=()
# A Python with pip is looked for only where something is missing.
if ! bin/rewardloop models verify "$@" >/dev/null 2>&1; then
	if python=$(pip_python); then options+=(--python "$python"); fi
fi
bin/rewardloop models pull --timeout "${MODELS_TIMEOUT:-600}s" "${options[@]}" "$@" ||
	die "not every model could be had; rewardloop models pull takes files from a folder, too: bin/rewardloop models --help"
