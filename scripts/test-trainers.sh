#!/usr/bin/env bash
# Rewards of the loop called by trainers' own code (python/tests/test_trl_real.py, test_trainers_real.py): TRL trains a tiny
# model on the CPU. The trainers' packages lie in .cache/trainers, without what they ask for, beside the environment of make
# test-verl (VERL_PYTHON names another Python that has torch, transformers, accelerate and datasets). What is on no package
# index is named by REWARDLOOP_CHECKOUTS, a folder that holds checkouts: slime, ROLL, RL (NeMo-RL), Flow-Factory.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-test-trainers.txt
site=.cache/trainers
others=(openrlhf==0.11.2 unirl==0.2.0) # pinned to Python 3.12 by their names alone

verl_python
pip=("$python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary ":all:" --target "$site")
if ! (cat "$pinned" && printf '%s\n' "${others[@]}") | cmp -s - "$site/installed.txt"; then
	rm -rf "$site"
	say "downloading trainers with pip into $site: $(sed -n 's/^# size: //p' "$pinned")"
	"${pip[@]}" --requirement "$pinned" || die "pip failed, see above: this needs a network once"
	"${pip[@]}" --ignore-requires-python --python-version 3.12 "${others[@]}" || die "pip failed, see above: ${others[*]}"
	(cat "$pinned" && printf '%s\n' "${others[@]}") >"$site/installed.txt"
fi

log=.cache/test-trainers.log
export REWARDLOOP_BIN=${REWARDLOOP_BIN:-$PWD/bin/rewardloop} PYTHONPATH=$PWD/python:$PWD/$site${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
say "trainers in $("$python" --version), log in $log"
within 1200 "$python" -m unittest -v tests.test_trl_real tests.test_trainers_real >"$log" 2>&1 || {
	tail -n 60 "$log" >&2
	die "a trainer's test failed, or they took longer than 20 minutes: all of it in $log"
}
tail -n 3 "$log"
if grep -q '^Ran 0 tests' "$log"; then die "no test was run, see $log"; fi
if grep -q "trl.*SKIPPED" "$log"; then die "TRL was not tried, see $log"; fi
if skipped=$(grep -o "SKIPPED: .*[^'\"]" "$log" | sort -u) && [ -n "$skipped" ]; then
	warn "what was not tried:"
	printf '%s\n' "$skipped" >&2
fi
