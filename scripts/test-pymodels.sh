#!/usr/bin/env bash
# Models in Python with real torch and transformers: the Go tests called Pymodels, the
# Python tests of the same name, and the row of the bench that compares a model behind the
# server with the same model alone, in a short form. They get an environment of their own
# below .cache, and HPSv3 and ImageReward, which need an old transformers, and the exporters, one each
# that sees its torch; REWARDLOOP_PYMODELS_PYTHON, REWARDLOOP_PYMODELS_OLD_PYTHON and
# REWARDLOOP_EXPORT_PYTHON name Pythons that have everything already.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-test-pymodels.txt
venv=.cache/pymodels
stamp=$venv/installed.txt
old_pinned=python/requirements-test-scorers-old.txt
old_venv=.cache/pymodels-old
export_pinned=models/export/requirements.txt
export_venv=.cache/pymodels-export

# make_environment makes $venv of $pinned.
make_environment() {
	local free
	if [ -x "$venv/bin/python" ] && cmp -s "$pinned" "$stamp" && "$venv/bin/python" -c pass 2>/dev/null; then
		return 0
	fi
	say "downloading with pip into $venv: $(sed -n 's/^# size: //p' "$pinned");" \
		"2 minutes at 50 MB/s, and 10 minutes for the tests on two cores"
	free=$(free_gb "$venv")
	[ "$free" -ge 15 ] || die "$free GB are free on the disk of $PWD/.cache, and the environment needs 8, beside 4.7 of pip's cache"
	new_venv "$venv" "or name a Python that has torch and transformers in REWARDLOOP_PYMODELS_PYTHON"
	if ! "${VENV_PIP[@]}" --requirement "$pinned"; then
		rm -rf "$venv"
		die "pip failed, see above: without a network name a Python that has torch and transformers in REWARDLOOP_PYMODELS_PYTHON"
	fi
	cp "$pinned" "$stamp"
}

# make_export_environment makes $export_venv, which sees the packages of the Python $1: torch is there already.
make_export_environment() {
	local hint="or name a Python that has the packages of $export_pinned in REWARDLOOP_EXPORT_PYTHON" seen
	if [ -x "$export_venv/bin/python" ] && cmp -s "$export_pinned" "$export_venv/installed.txt" && "$export_venv/bin/python" -c 'import torch, onnx' 2>/dev/null; then
		return 0
	fi
	seen=$("$1" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent.parent)')
	PYTHON=$1 new_venv "$export_venv" "$hint"
	echo "$seen" >"$("$export_venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rewardloop.pth"
	if ! "${VENV_PIP[@]}" --requirement "$export_pinned"; then
		rm -rf "$export_venv"
		die "pip failed, see above: $hint"
	fi
	cp "$export_pinned" "$export_venv/installed.txt"
}

# make_old_environment makes $old_venv, which sees the packages of the Python $1.
make_old_environment() {
	local hint="or name a Python that has hpsv3 and ImageReward in REWARDLOOP_PYMODELS_OLD_PYTHON" seen
	if [ -x "$old_venv/bin/python" ] && cmp -s "$old_pinned" "$old_venv/installed.txt" && "$old_venv/bin/python" -c 'import torch' 2>/dev/null; then
		return 0
	fi
	seen=$("$1" -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent.parent)')
	PYTHON=$1 new_venv "$old_venv" "$hint"
	echo "$seen" >"$("$old_venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rewardloop.pth"
	# Neither package needs all that it asks for, such as deepspeed.
	if ! "${VENV_PIP[@]}" --requirement "$old_pinned" || ! "${VENV_PIP[@]}" --no-deps hpsv3==1.0.0 image-reward==1.5; then
		rm -rf "$old_venv"
		die "pip failed, see above: $hint"
	fi
	cp "$old_pinned" "$old_venv/installed.txt"
}

python=${REWARDLOOP_PYMODELS_PYTHON:-}
if [ -z "$python" ]; then
	make_environment
	python=$PWD/$venv/bin/python
fi
"$python" -c 'import torch, transformers, numpy, PIL, websockets, aesthetic_predictor_v2_5, open_clip, pyiqa' ||
	die "$python lacks a package that the tests need: $pinned has their versions"
old_python=${REWARDLOOP_PYMODELS_OLD_PYTHON:-}
if [ -z "$old_python" ]; then
	make_old_environment "$python"
	old_python=$PWD/$old_venv/bin/python
fi
export_python=${REWARDLOOP_EXPORT_PYTHON:-}
if [ -z "$export_python" ]; then
	make_export_environment "$python"
	export_python=$PWD/$export_venv/bin/python
fi
export REWARDLOOP_PYMODELS_OLD_PYTHON=$old_python REWARDLOOP_EXPORT_PYTHON=$export_python
use_models
export REWARDLOOP_PYMODELS=1 REWARDLOOP_PYMODELS_PYTHON=$python REWARDLOOP_PYTHON=$python
export REWARDLOOP_BIN=${REWARDLOOP_BIN:-$PWD/bin/rewardloop} PYTHONDONTWRITEBYTECODE=1
# The bound of the Makefile is for Tesseract; torch's threads are OpenMP's.
unset OMP_THREAD_LIMIT

log=.cache/test-pymodels.log
mkdir -p .cache
: >"$log"
say "Go tests with torch ($("$python" --version), log in $log)"
mapfile -t folders < <(grep -rlE '^func TestPymodels' --include='*_test.go' . | xargs -r -n1 dirname | sort -u)
[ ${#folders[@]} -gt 0 ] || die "no Go test is called Pymodels"
within 1800 "$GO" test -tags "$(scripts/tags.sh)" -count=1 -v -timeout=30m -run '^TestPymodels' "${folders[@]}" 2>&1 | tee -a "$log" ||
	die "a test failed, or they took longer than 30 minutes: see $log"

modules=()
for file in python/tests/test_pymodels*.py; do
	[ ! -e "$file" ] || modules+=("tests.$(basename "$file" .py)")
done
if [ ${#modules[@]} -gt 0 ]; then
	say "Python tests with torch"
	(cd python && within 1800 "$python" -m unittest -v "${modules[@]}") 2>&1 | tee -a "$log" || die "a test failed: see $log"
fi
if grep -F "SKIPPED" "$log"; then die "something was left out, though this is the place for it"; fi

say "the model behind the server beside the same model alone, in a short form"
scripts/tool.sh bench -suite pymodels -rows 'vision/' -n 3 -t 10s | tee -a "$log"
if grep -F "SKIPPED" "$log"; then die "the bench has no torch"; fi
