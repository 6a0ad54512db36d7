#!/usr/bin/env bash
# Runs the tests that need an NVIDIA card, those behind the tag gpu, or says that
# there is none; that they compile is checked anywhere. They want a library with
# CUDA: that of the onnxruntime-gpu wheel, its providers beside it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(find . -type d -name '.?*' -prune -o -type f -name '*_test.go' -exec grep -lE '^//go:build.*\<gpu\>' {} +)
[ ${#files[@]} -gt 0 ] || die "no test stands behind the tag gpu"
mapfile -t packages < <(dirname "${files[@]}" | sort -u)
names=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' "${files[@]}" | paste -sd '|' -)
$GO vet -tags gpu "${packages[@]}"

if ! cards=$(nvidia-smi -L 2>/dev/null) || [ -z "$cards" ]; then
	say "test-gpu SKIPPED: no NVIDIA card is at hand (nvidia-smi -L lists none); the tests compile, and none was run"
	exit 0
fi
say "$cards"
if [ -z "${ONNXRUNTIME_SHARED_LIBRARY_PATH:-}" ]; then
	warn "ONNXRUNTIME_SHARED_LIBRARY_PATH is not set: the library of make ort knows the CPU only." \
		"pip download onnxruntime-gpu==$ORT_VERSION, unzip it and name its onnxruntime/capi/libonnxruntime.so.$ORT_VERSION"
	scripts/ort.sh
else
	export REQUIRE_ORT=${REQUIRE_ORT:-1} # A library that was named and has no CUDA is a failure, not a skip.
fi
use_models
$GO test -tags gpu -count=1 -v -run "^($names)\$" "${packages[@]}"
