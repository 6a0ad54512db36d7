#!/usr/bin/env bash
# Models in Python with real torch and transformers: the Go tests called Pymodels, the
# Python tests of the same name, and the row of the bench that compares a model behind the
# server with the same model alone, in a short form. They get an environment of their own
# below .cache; REWARDLOOP_PYMODELS_PYTHON names a Python that has everything already.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-test-pymodels.txt
venv=.cache/pymodels
stamp=$venv/installed.txt

# make_environment makes $venv of $pinned.
make_environment() {
	local free
	if [ -x "$venv/bin/python" ] && cmp -s "$pinned" "$stamp" && "$venv/bin/python" -c pass 2>/dev/null; then
		return 0
	fi
	say "downloading with pip into $venv: $(sed -n 's/^# size: //p' "$pinned");" \
		"2 minutes at 50 MB/s, and 10 minutes for the tests on two cores"
	free=$(free_gb "$venv")
	[ "$free" -ge 15 ] || die "$free GB are free on the disk of $PWD/.cache, and the environment needs 7.2, beside 4.2 of pip's cache"
	new_venv "$venv" "or name a Python that has torch and transformers in REWARDLOOP_PYMODELS_PYTHON"
	if ! "${VENV_PIP[@]}" --requirement "$pinned"; then
		rm -rf "$venv"
		die "pip failed, see above: without a network name a Python that has torch and transformers in REWARDLOOP_PYMODELS_PYTHON"
	fi
	cp "$pinned" "$stamp"
}

python=${REWARDLOOP_PYMODELS_PYTHON:-}
if [ -z "$python" ]; then
	make_environment
	python=$PWD/$venv/bin/python
fi
"$python" -c 'import torch, transformers, numpy, PIL' || die "$python lacks torch, transformers, numpy or pillow: $pinned has their versions"
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
	(cd python && within 900 "$python" -m unittest -v "${modules[@]}") 2>&1 | tee -a "$log" || die "a test failed: see $log"
fi
if grep -F "SKIPPED" "$log"; then die "something was left out, though this is the place for it"; fi

say "the model behind the server beside the same model alone, in a short form"
scripts/tool.sh bench -suite pymodels -rows 'vision/' -n 1 -t 5s | tee -a "$log"
if grep -F "SKIPPED" "$log"; then die "the bench has no torch"; fi
