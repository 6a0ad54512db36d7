#!/usr/bin/env bash
# Runs the tests that need an NVIDIA card, those behind the tag gpu, or says that
# there is none; that they compile is checked anywhere. They want the library with CUDA that
# ORT_FLAVOUR=gpu make ort brings, and CUDA's own where LD_LIBRARY_PATH or the system has
# them. A machine without Go takes the bundle: docs/gpu.md.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t tests < <(gpu_tests)
packages=()
for line in "${tests[@]}"; do packages+=("./${line%% *}"); done
$GO vet -tags gpu "${packages[@]}"

if ! cards=$(nvidia-smi -L 2>/dev/null) || [ -z "$cards" ]; then
	say "test-gpu SKIPPED: no NVIDIA card is at hand (nvidia-smi -L lists none); the tests compile, and none was run"
	exit 0
fi
say "$cards"
if [ -z "${ONNXRUNTIME_SHARED_LIBRARY_PATH:-}" ]; then
	ORT_FLAVOUR=gpu scripts/ort.sh
	export ONNXRUNTIME_SHARED_LIBRARY_PATH=$PWD/$ORT_GPU_DIR/libonnxruntime.so.$ORT_VERSION
fi
export REQUIRE_ORT=${REQUIRE_ORT:-1} # A library that has no CUDA is a failure here, not a skip.
use_models
failed=0
for line in "${tests[@]}"; do
	$GO test -tags gpu -count=1 -v -run "${line#* }" "./${line%% *}" || failed=1
done
exit "$failed"
