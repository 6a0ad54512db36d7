"""FlowGRPO through a reward loop, on two CPU cores.

    learn.py check                 what make test-learn runs: three minutes
    learn.py all --out folder      what make learn runs: every experiment, and report.html
    learn.py run --arm streamed    one arm

REWARDLOOP_BIN is the path of the server's binary.
"""

import argparse
import json
import os
import sys
from pathlib import Path

# One thread, or sums may be taken in another order; on a card the flag below does the same.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false --xla_gpu_deterministic_ops=true")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import experiments
import policy
import pretrain as pretraining
from tqdm import tqdm

CACHE = Path(os.environ.get("REWARDLOOP_LEARN_CACHE", ".cache/learn"))


def reference(steps: int = pretraining.STEPS) -> policy.Params:
    """Returns the pre-trained weights; the first call trains them and keeps them in the cache."""
    path = CACHE / f"base-{steps}.npz"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tqdm(total=steps, desc="pre-training", unit="step", disable=None) as bar:

            def progress(step: int, loss: float) -> None:
                bar.update(step - bar.n)
                bar.set_postfix(loss=f"{loss:.3f}")

            made = pretraining.pretrain(steps=steps, progress=progress)
        partial = path.with_suffix(".part.npz")
        policy.save(str(partial), made)
        partial.replace(path)
    return policy.load(str(path))


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pretrain", help="make the weights that every run begins with, in two minutes, and keep them")
    one = commands.add_parser("run", help="train one arm, and print what it has learned")
    one.add_argument("--arm", default="streamed", choices=sorted(experiments.ARMS))
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--steps", type=int, default=130)
    one.add_argument("--out", type=Path, default=Path("learn-out"))
    parts = {
        "learns": "three seeds, 130 steps each: held-out reward and grain (half an hour)",
        "same": "the same weights, bit by bit, whatever fails (a quarter of an hour)",
        "blind": "half of all samples fail: impute, mask and zero (a quarter of an hour)",
        "hacked": "a reward that is hacked, and its cure (a quarter of an hour)",
        "overlap": "what a step takes in each arm, beside rewardloop plan (five minutes)",
        "all": "all of these, and report.html",
        "check": "what make test-learn runs (three minutes)",
    }
    for name, help_ in parts.items():
        sub = commands.add_parser(name, help=help_)
        sub.add_argument("--out", type=Path, default=Path("learn-out"))
    args = parser.parse_args()
    base = reference()
    if args.command == "pretrain":
        print(policy.digest(base))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    lab = experiments.Lab(base, args.out)
    if args.command == "run":
        said = lab.run(args.arm, args.seed, args.steps)
        print(json.dumps({k: v for k, v in said.items() if k != "steps"}, indent=1))
        return 0
    return experiments.conduct(lab, args.command)


if __name__ == "__main__":
    sys.exit(main())
