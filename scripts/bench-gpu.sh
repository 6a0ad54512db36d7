#!/usr/bin/env bash
# bench-gpu.sh [FLAGS]: the suite gpu of the bench, with the library that knows CUDA unless
# -device cpu is among the flags.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

use_models
case " $* " in
*" -device cpu "* | *" -device=cpu "*) scripts/ort.sh ;;
*)
	cards=$(nvidia-smi -L 2>/dev/null) && [ -n "$cards" ] ||
		die "no NVIDIA card is at hand (nvidia-smi -L lists none); BENCHFLAGS=\"-device cpu\" runs the small form without one"
	say "$cards"
	if [ -z "${ONNXRUNTIME_SHARED_LIBRARY_PATH:-}" ] || [ "$ONNXRUNTIME_SHARED_LIBRARY_PATH" = "$PWD/$ORT_DIR/libonnxruntime.so.$ORT_VERSION" ]; then
		ORT_FLAVOUR=gpu scripts/ort.sh
		export ONNXRUNTIME_SHARED_LIBRARY_PATH=$PWD/$ORT_GPU_DIR/libonnxruntime.so.$ORT_VERSION
	fi
	;;
esac
scripts/tool.sh bench -suite gpu -n 3 -t 2s "$@"
