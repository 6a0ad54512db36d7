#!/usr/bin/env bash
# Runs the tests that need an NVIDIA card, or says that there is none. They want
# a library with CUDA: that of the onnxruntime-gpu wheel, its providers beside it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! cards=$(nvidia-smi -L 2>/dev/null) || [ -z "$cards" ]; then
	say "test-gpu SKIPPED: no NVIDIA card is at hand (nvidia-smi -L lists none); nothing was tested"
	exit 0
fi
say "$cards"
if [ -z "${ONNXRUNTIME_SHARED_LIBRARY_PATH:-}" ]; then
	warn "ONNXRUNTIME_SHARED_LIBRARY_PATH is not set: the library of make ort knows the CPU only." \
		"pip download onnxruntime-gpu==$ORT_VERSION, unzip it and name its onnxruntime/capi/libonnxruntime.so.$ORT_VERSION"
	scripts/ort.sh
fi
use_models
$GO test -tags gpu -count=1 -run GPU -v ./pool/ort/
