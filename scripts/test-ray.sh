#!/usr/bin/env bash
# Workers on a Ray cluster (python/rewardloop/ray.py) against a real one of two nodes
# on this machine. They get an environment of their own below .cache; RAY_PYTHON names
# a Python that has everything already, such as that of make test-verl.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-test-ray.txt
venv=.cache/ray

python=${RAY_PYTHON:-}
if [ -z "$python" ]; then
	pinned_venv "$pinned" "$venv" "name a Python that has ray in RAY_PYTHON"
	python=$PWD/$venv/bin/python
fi

log=.cache/test-ray.log
mkdir -p .cache
export REWARDLOOP_BIN=${REWARDLOOP_BIN:-$PWD/bin/rewardloop} PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1
export RAY_USAGE_STATS_ENABLED=0
say "workers on a Ray cluster ($("$python" --version), log in $log)"
modules=(tests.test_ray)
# RAY_TESTS="tests.test_ray.OnACluster.test_…" runs some of them.
if [ -n "${RAY_TESTS:-}" ]; then read -ra modules <<<"$RAY_TESTS"; fi
within 900 "$python" -m unittest -v "${modules[@]}" 2>&1 | tee "$log" || die "a test failed, or they took longer than 15 minutes: see $log"
if grep -q '^Ran 0 tests' "$log"; then die "no test was run"; fi
if grep -F "skipped 'SKIPPED" "$log"; then die "something was left out, though this is the place for it"; fi
