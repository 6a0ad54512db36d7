#!/usr/bin/env bash
# The figures of ONNX reward models: the bench with -suite onnx, with ONNX Runtime found.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

use_models
scripts/tool.sh bench -suite onnx "$@"
