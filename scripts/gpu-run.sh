#!/usr/bin/env bash
# Joins a bundle of make gpu-bundle, checks it, and runs the tests and the bench in it, on the
# card where there is one and in their CPU form where there is none. It needs bash, coreutils and
# no network, and takes less than ten minutes.
#
#   bash gpu-run.sh [FOLDER OF PARTS]     default: the folder of this script
#
#   OUT     where gpu.json and gpu.log go; default ./gpu-results
#   WORK    a folder for 5 GB that are removed again; default: a new one below TMPDIR or /tmp
#   DEVICE  the card, cuda:<n>, or cpu; default cuda:0 where nvidia-smi or /dev has a card
#
# Exit code 0: everything held; 1: a test failed or a figure missed its bound; 2: it did not run.
set -euo pipefail
unset CDPATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
parts=$(cd "${1:-$here}" && pwd) || exit 2
mkdir -p "${OUT:-gpu-results}" || exit 2
out=$(cd "${OUT:-gpu-results}" && pwd)
begun=$SECONDS

say() { printf '==> %s\n' "$*"; }
fail() {
	printf '==> ERROR: %s\n' "$*"
	exit 2
}

# cards prints the cards, one a line; nothing where there are none.
cards() {
	local found
	# What it says where it fails, it says on its output.
	if found=$(nvidia-smi --query-gpu=name,uuid,driver_version,memory.total --format=csv,noheader 2>/dev/null) && [ -n "$found" ]; then
		printf '%s\n' "$found"
	else
		ls /dev/nvidia[0-9]* 2>/dev/null | head -n 16 || true
	fi
}

# libraries prints the folders with CUDA's libraries of the PyTorch that python3 finds.
libraries() {
	local python
	for python in "${PYTHON:-python3}" python; do
		"$python" - 2>/dev/null <<-'PYTHON' && return
			import glob, importlib.util, os
			site = os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin))
			for folder in sorted(glob.glob(site + "/nvidia/*/lib")) + [site + "/torch/lib"]:
			    if os.path.isdir(folder):
			        print(folder)
		PYTHON
	done
	return 0
}

# missing prints which of CUDA's libraries are in none of the folders of LD_LIBRARY_PATH and not
# known to the loader.
missing() {
	local name folder
	for name in libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcurand.so.10 libcudnn.so.9 libnvrtc.so.13; do
		while read -r -d : folder; do
			[ ! -e "$folder/$name" ] || continue 2
		done <<<"$LD_LIBRARY_PATH:"
		case $(ldconfig -p 2>/dev/null || true) in *"$name"*) continue ;; esac
		printf ' %s' "$name"
	done
}

# bounded SECONDS COMMAND...: where there is no timeout(1) the command has no bound.
bounded() {
	local seconds=$1
	shift
	if command -v timeout >/dev/null; then timeout --kill-after=10 "$seconds" "$@"; else "$@"; fi
}

# text prints what can stand in a JSON string.
text() { printf '%s' "$*" | tr -d '"\\\000-\037'; }

run() {
	local root=$work/root unpack=$work/bundle device=${DEVICE:-} found torch=() failed=0 passed=0 bad=0 skipped=0 line package program cpu pattern code figures=0
	# The parts may have come by a way that keeps no modes.
	cp "$parts/bundle" "$unpack"
	chmod 755 "$unpack"
	"$unpack" join "$parts" "$root" || fail "the bundle in $parts cannot be used: see above"
	say "$(cat "$root/about.json")"

	found=$(cards)
	if [ -z "$device" ]; then
		[ -n "$found" ] && device=cuda:0 || device=cpu
	fi
	if [ "$device" = cpu ]; then
		say "there is no card at hand, or none is wanted: the tests and the bench run on the CPU, which proves nothing about CUDA"
	else
		say "cards:"
		printf '%s\n' "$found"
	fi

	mapfile -t torch < <(libraries)
	LD_LIBRARY_PATH=$(IFS=:; printf '%s' "$root/lib${torch[*]:+:${torch[*]}}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$root/lib/last")
	export LD_LIBRARY_PATH
	export ONNXRUNTIME_SHARED_LIBRARY_PATH REQUIRE_ORT=1 REWARDLOOP_MODELS=$root/models HOME=$work/home TMPDIR=$work/tmp
	ONNXRUNTIME_SHARED_LIBRARY_PATH=$(echo "$root"/lib/libonnxruntime.so.*)
	mkdir -p "$HOME" "$TMPDIR"
	if [ "$device" != cpu ]; then
		say "CUDA's libraries are looked for in $LD_LIBRARY_PATH"
		line=$(missing)
		[ -z "$line" ] || fail "of CUDA's libraries these are nowhere:$line. Name their folders with LD_LIBRARY_PATH, or take a bundle of make gpu-bundle TARGET=driver"
	fi

	say "rewardloop doctor"
	(cd "$root/src" && bounded 60 "$root/bin/rewardloop" doctor) || say "doctor ends with $?: what it says stands above"

	while read -r package program cpu pattern; do
		say "tests of $package on $device"
		mkdir -p "$root/src/$package"
		local choice=(-test.run "$pattern")
		[ "$device" != cpu ] || choice=(-test.run "$cpu" -test.skip "$pattern" -test.short)
		code=0
		(cd "$root/src/$package" && bounded 180 "$root/bin/$program" -test.v -test.count=1 -test.timeout=170s "${choice[@]}") >"$work/tests" 2>&1 || code=$?
		cat "$work/tests"
		while IFS= read -r line; do
			case $line in
			'--- PASS'*) passed=$((passed + 1)) ;;
			'--- FAIL'*) bad=$((bad + 1)) ;;
			'--- SKIP'*) skipped=$((skipped + 1)) ;;
			esac
		done <"$work/tests"
		if [ "$code" != 0 ]; then
			failed=1
			say "the tests of $package end with $code"
		fi
	done <"$root/tests"
	say "tests: $passed passed, $bad failed, $skipped skipped"

	say "bench -suite gpu -device $device"
	local left=$((570 - SECONDS + begun))
	mkdir -p "$work/results"
	(cd "$root/src" && bounded "$left" "$root/bin/bench" -suite gpu -device "$device" -n 3 -t 2s -within "$((left > 180 ? left - 120 : 60))s" -out "$work/results") || figures=$?
	[ "$figures" = 0 ] || say "the bench ends with $figures: 1 says that a figure missed its bound, 124 that its time was over"

	{
		printf '{\n"date": "%s",\n"bundle": %s,\n"device": "%s",\n"cards": "%s",\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(cat "$root/about.json")" "$(text "$device")" "$(text "${found//$'\n'/; }")"
		printf '"tests": {"passed": %d, "failed": %d, "skipped": %d, "held": %s},\n' "$passed" "$bad" "$skipped" "$([ "$failed" = 0 ] && echo true || echo false)"
		printf '"bench_exit": %d,\n"seconds": %d,\n"report": ' "$figures" "$((SECONDS - begun))"
		if [ -s "$work/results/gpu.json" ]; then cat "$work/results/gpu.json"; else echo null; fi
		printf '}\n'
	} >"$out/gpu.json"
	say "$out/gpu.json and $out/gpu.log after $((SECONDS - begun)) s"
	[ "$failed" = 0 ] && [ "$figures" = 0 ]
}

if [ -n "${WORK:-}" ]; then mkdir -p "$WORK"; fi
work=$(mktemp -d "${WORK:-${TMPDIR:-/tmp}}/rewardloop-gpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
status=0
run 2>&1 | tee "$out/gpu.log" || status=${PIPESTATUS[0]}
exit "$status"
