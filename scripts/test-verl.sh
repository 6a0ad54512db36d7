#!/usr/bin/env bash
# The verl plug-ins driven by verl's own code and, where REWARDLOOP_VERL_OMNI names
# a checkout of it, by verl-omni's; and flow_grpo's own training loop, where
# REWARDLOOP_FLOW_GRPO names a checkout of it. They get an environment of their own below
# .cache; VERL_PYTHON names a Python that has everything already.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

verl_python
omni=${REWARDLOOP_VERL_OMNI:-}
if [ -z "$omni" ]; then
	warn "SKIPPED: verl-omni, which is on no package index: name a checkout of it in REWARDLOOP_VERL_OMNI"
elif [ ! -d "$omni/verl_omni" ]; then
	die "REWARDLOOP_VERL_OMNI is $omni, which holds no verl_omni"
fi

log=.cache/test-verl.log
mkdir -p .cache
export REWARDLOOP_BIN=${REWARDLOOP_BIN:-$PWD/bin/rewardloop} REWARDLOOP_PYTHON=$python PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}
say "the plug-ins with verl's own code ($("$python" --version), log in $log)"
modules=(tests.test_verl_rows tests.test_verl_named tests.test_verl_steps tests.test_verl_omni tests.test_verl_real)
# VERL_TESTS="tests.test_verl_real.WithVerl.test_…" runs some of them.
if [ -n "${VERL_TESTS:-}" ]; then read -ra modules <<<"$VERL_TESTS"; fi
within 1800 "$python" -m unittest -v "${modules[@]}" 2>&1 | tee "$log" || die "a test failed, or they took longer than 30 minutes: see $log"
if grep -q '^Ran 0 tests' "$log"; then die "no test was run"; fi
if skipped=$(grep -F "skipped 'SKIPPED" "$log"); then
	warn "what was not tried:"
	printf '%s\n' "$skipped" >&2
	if grep -qv 'test_verl_omni' <<<"$skipped"; then die "with verl installed only verl-omni may be left out"; fi
fi
say "results in pandas and in TensorBoard"
within 300 "$python" -m unittest -v tests.test_report 2>&1 | tee .cache/test-report.log || die "a test failed: see .cache/test-report.log"
if [ -z "${REWARDLOOP_FLOW_GRPO:-}" ]; then
	warn "SKIPPED: flow_grpo's loop: name a checkout of it in REWARDLOOP_FLOW_GRPO"
else
	within 1800 "$python" examples/real_trainers/flow_grpo_loop.py --checkout "$REWARDLOOP_FLOW_GRPO" --out .cache/flow_grpo || die "flow_grpo's loop failed; its logs are in .cache/flow_grpo"
fi
