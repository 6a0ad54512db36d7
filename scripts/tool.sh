#!/usr/bin/env bash
# tool.sh NAME [ARGUMENT...]: builds a program of tools/, a module of its own, and runs it in
# the root of the clone: tool.sh bench -h.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || die "tool.sh NAME [ARGUMENT...]: NAME is a program of tools/: bench, bench/ocr, bundle, docscheck or licences"
name=$1 program=$PWD/.cache/tools/${1//\//-}
shift
$GO build -C tools -tags "$(scripts/tags.sh)" -o "$program" "./$name"
exec "$program" "$@"
