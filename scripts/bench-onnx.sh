#!/usr/bin/env bash
# The figures of ONNX reward models: go run ./bench -suite onnx, with ONNX Runtime found.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

use_models
$GO run -tags "$(scripts/tags.sh)" ./bench -suite onnx "$@"
