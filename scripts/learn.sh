#!/usr/bin/env bash
# learn.sh EXPERIMENT [flags]: FlowGRPO whose rewards come through this loop (examples/learn),
# in an environment of its own below .cache. LEARN_PYTHON names a Python that has everything
# already; LEARN_OUT is where curves, pictures and report.html go; REWARDLOOP_RESULTS=1 writes
# docs/results/learn.json, and its page.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-learn.txt
venv=.cache/learn/venv

scripts/ort.sh && scripts/models.sh
use_models
python=${LEARN_PYTHON:-}
if [ -z "$python" ]; then
	pinned_venv "$pinned" "$venv" "name a Python that has jax in LEARN_PYTHON"
	python=$PWD/$venv/bin/python
fi
out=${LEARN_OUT:-.cache/learn/${1:-all}}
export REWARDLOOP_BIN=${REWARDLOOP_BIN:-$PWD/bin/rewardloop} REWARDLOOP_PYTHON=$python PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1
code=0
"$python" examples/learn/learn.py "${1:-all}" --out "$out" "${@:2}" || code=$?
if [ "${REWARDLOOP_RESULTS:-}" = 1 ] && [ "${1:-all}" = all ]; then scripts/tool.sh bench -tables; fi
exit "$code"
