#!/usr/bin/env bash
# [STAY=1] demo.sh [flags of rewardloop demo]: builds and runs the demo with the reader of
# text that this machine can have. PP-OCR comes first: it needs a C compiler,
# Python's pip or venv, a network the first time, and nothing of root. Where that
# fails it is Tesseract, which apt installs.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Nothing is heard of a compiler for minutes where Go's cache is empty.
build() {
	say "building bin/rewardloop (minutes the first time, seconds from then on)"
	scripts/build.sh
}

# A slow network is not to keep a newcomer waiting: 16 and 23 MB come in this time
# at 130 and 190 KB/s.
export ORT_TIMEOUT=${ORT_TIMEOUT:-120} MODELS_TIMEOUT=${MODELS_TIMEOUT:-120}

# pp_ocr makes what PP-OCR needs be here.
pp_ocr() {
	if [ "$($GO env CGO_ENABLED)" != 1 ]; then
		warn "no C compiler, and ONNX Runtime is called through cgo"
		return 1
	fi
	scripts/ort.sh && scripts/models.sh
}

scripts/deps.sh compiler pip modules
build
if ! pp_ocr; then
	warn "without PP-OCR: the demo reads with Tesseract"
	scripts/deps.sh debian
	build # The headers of Tesseract may have come.
fi
use_models
# The package that makes rm_scores needs NumPy, which this Python has where the tests were run.
if [ -x .venv/bin/python ]; then export REWARDLOOP_PYTHON=${REWARDLOOP_PYTHON:-$PWD/.venv/bin/python}; fi
if [ "${STAY:-0}" = 1 ]; then set -- --stay "$@"; fi # make demo STAY=1
exec bin/rewardloop demo "$@"
