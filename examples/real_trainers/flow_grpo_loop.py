"""flow_grpo's own training loop, unchanged, with rewards from a reward loop.

    flow_grpo_loop.py --checkout ../flow_grpo --out folder

The program runs scripts/train_sd3.py of a checkout of flow_grpo (ac4c86e) twice on the CPU, in two processes with
DistributedDataParallel, on a Stable Diffusion 3 pipeline with random weights: once with flow_grpo's own
jpeg_compressibility, once with the same function behind a reward loop. Both runs must end with the same LoRA weights.
REWARDLOOP_BIN is the path of the server's binary.

Three things are replaced: the module wandb, by one that writes lines of JSON; one entry of flow_grpo.rewards, as users
of flow_grpo would replace it; and the endless loop, which ends after the requested epochs.
"""

import argparse
import hashlib
import importlib.machinery
import json
import os
import runpy
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import rewardloop

HERE = Path(__file__).resolve().parent
PROCESSES, UPDATES_AN_EPOCH = 2, 2
PROMPTS = [f"a {colour} {shape} on white" for colour in ("red", "green", "blue") for shape in ("circle", "square", "triangle")]
#: Seconds for a run.
LIMIT = 900.0


class _OverError(BaseException):
    """The epochs that were asked for are over."""


def _wandb(log: Path) -> types.ModuleType:
    """What the script uses of wandb: numbers go to a file, pictures nowhere."""
    made = types.ModuleType("wandb")

    def write(values: dict[str, Any], step: int) -> None:
        numbers = {k: float(v) for k, v in values.items() if not isinstance(v, list)}
        if numbers:
            with log.open("a") as file:
                file.write(json.dumps({"step": step, **numbers}) + "\n")

    made.__spec__ = importlib.machinery.ModuleSpec("wandb", None)  # libraries ask whether it is there
    vars(made).update(init=lambda **_: None, log=write, Image=lambda *_, **__: None)
    return made


def train(arm: str, out: Path, epochs: int) -> None:
    """Runs one process of a run: the script, as torchrun would start it. FLOW_GRPO is the path of the checkout."""
    checkout = Path(os.environ["FLOW_GRPO"])
    sys.path.insert(0, str(checkout))
    sys.modules["wandb"] = _wandb(out / f"{arm}.jsonl")
    import flow_grpo.rewards
    import flow_grpo.stat_tracking
    import peft
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arm == "loop":
        from rewardloop.flow_grpo import scorer_remote

        flow_grpo.rewards.jpeg_compressibility = scorer_remote("jpeg_compressibility")
    trained: list[torch.nn.Module] = []
    adapt, tracker = peft.get_peft_model, flow_grpo.stat_tracking.PerPromptStatTracker

    def remembered(*args: Any, **kwargs: Any) -> Any:
        trained.append(adapt(*args, **kwargs))
        return trained[0]

    class Counted(tracker):
        """Ends the run in every process at the same time: each process computes the advantages of all samples."""

        begun = 0

        def update(self, *args: Any, **kwargs: Any) -> Any:
            self.begun += 1
            if self.begun > epochs:
                raise _OverError
            return super().update(*args, **kwargs)

    peft.get_peft_model, flow_grpo.stat_tracking.PerPromptStatTracker = remembered, Counted
    script = str(checkout / "scripts" / "train_sd3.py")
    sys.argv = [script, f"--config={HERE / 'flow_grpo_config.py'}"]
    try:
        runpy.run_path(script, run_name="__main__")
    except _OverError:
        pass
    else:
        raise RuntimeError(f"{script} ended by itself")
    total = hashlib.sha256()
    for _, values in sorted((n, p) for n, p in trained[0].named_parameters() if p.requires_grad):
        total.update(values.detach().numpy().tobytes())
    (out / f"{arm}-{os.environ['RANK']}.sha256").write_text(total.hexdigest())


def run(arm: str, out: Path, epochs: int, env: dict[str, str]) -> dict[str, Any]:
    """Runs both processes of an arm, and returns the measurements."""
    for old in out.glob(f"{arm}*"):
        old.unlink()
    began = time.monotonic()
    with (out / f"{arm}.log").open("w") as log:
        command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}", __file__]
        try:
            subprocess.run(
                [sys.executable, "-m", *command, "--arm", arm, "--out", str(out), "--epochs", str(epochs)],
                env=env, stdout=log, stderr=log, check=True, timeout=LIMIT, cwd=out,
            )  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as err:
            raise SystemExit(f"{arm}: {err}; its log is {log.name}") from None
    lines = [json.loads(line) for line in (out / f"{arm}.jsonl").read_text().splitlines()]
    digests = {(out / f"{arm}-{rank}.sha256").read_text() for rank in range(PROCESSES)}
    return {
        "sha256": digests.pop() if len(digests) == 1 else f"differs between the processes: {digests}",
        "rewards": [line["reward_ori_avg"] for line in lines if "reward_ori_avg" in line],
        "updates": sum("policy_loss" in line for line in lines),
        "losses": [line["loss"] for line in lines if "loss" in line],
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, help="a checkout of flow_grpo")
    parser.add_argument("--out", type=Path, required=True, help="where logs, curves and the pipeline go")
    parser.add_argument("--epochs", type=int, default=12, help=f"of {UPDATES_AN_EPOCH} updates each")
    parser.add_argument("--arm", choices=("own", "loop"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = args.out.resolve()
    if args.arm:
        train(args.arm, out, args.epochs)
        return 0
    if not args.checkout or not (args.checkout / "scripts" / "train_sd3.py").exists():
        parser.error(f"--checkout is {args.checkout}, which holds no scripts/train_sd3.py")
    out.mkdir(parents=True, exist_ok=True)
    import tiny_sd3

    prompts = out / "prompts"
    prompts.mkdir(exist_ok=True)
    for split, chosen in (("train", PROMPTS), ("test", PROMPTS[:8])):
        (prompts / f"{split}.txt").write_text("\n".join(chosen))
    env = {
        **os.environ,
        "ACCELERATE_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "FLOW_GRPO": str(args.checkout.resolve()),
        "FLOW_GRPO_MODEL": str(tiny_sd3.build(out / "tiny-sd3")),
        "FLOW_GRPO_PROMPTS": str(prompts),
    }
    own = run("own", out, args.epochs, env)
    with rewardloop.launch(config=HERE / "flow_grpo.yaml") as server:
        loop = run("loop", out, args.epochs, {**env, "REWARDLOOP_URL": server.url})
    (out / "flow_grpo.json").write_text(json.dumps({"own": own, "loop": loop}, indent=1) + "\n")
    for arm, said in (("its own reward", own), ("rewards by the loop", loop)):
        first, last = said["rewards"][0], said["rewards"][-1]
        print(f"{arm}: {said['updates']} updates in {said['seconds']} s, reward {first:.3f} to {last:.3f}, LoRA {said['sha256']}")
    same = own["sha256"] == loop["sha256"] and own["rewards"] == loop["rewards"] and own["losses"] == loop["losses"]
    enough = loop["updates"] == args.epochs * UPDATES_AN_EPOCH
    print("holds" if same and enough else "MISSED", ": rewards, losses and LoRA weights are the same, bit for bit", sep="")
    return 0 if same and enough else 1


if __name__ == "__main__":
    sys.exit(main())
