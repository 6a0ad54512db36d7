"""The experiments: which arms run, what is measured, and what must hold."""

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import policy
import report as reports
import service
from flowgrpo import Settings
from policy import Params
from service import Service
from tqdm import tqdm
from train import Arm, Trainer, evaluate

import rewardloop

SHORT = Settings()
ARMS = {
    a.name: a
    for a in (
        Arm("after", schedule="after"),
        Arm("streamed"),
        Arm("killed", beside="killed"),
        Arm("stalled", beside="stalled"),
        Arm("neighbour", beside="neighbour"),
        Arm("one_step_off", schedule="one_step_off"),
        Arm("impute", profile="faulty"),
        Arm("mask", profile="faulty", on_failed="mask"),
        Arm("zero", profile="faulty", on_failed="zero"),
        Arm("no_late_kl", settings=replace(SHORT, kl_late=0.0)),
        Arm("no_late_kl8", settings=replace(SHORT, kl_late=0.0, trained=8)),
        Arm("cured8", profile="clean", settings=replace(SHORT, kl_late=0.0, trained=8)),
        Arm("cured", profile="clean", settings=replace(SHORT, kl_late=0.0)),
        Arm("timed_after", schedule="after", profile="elsewhere", generator=0.25, reward=1.0),
        Arm("timed_streamed", profile="elsewhere", generator=0.25, reward=1.0),
        Arm("timed_one_step_off", schedule="one_step_off", profile="elsewhere", generator=0.25, reward=1.0),
    )
}


class Lab:
    """Runs arms from the same weights, and keeps what they gave as <arm>-<seed>-<steps>.json."""

    def __init__(self, base: Params, out: Path) -> None:
        self.base, self.out = base, out

    def service(self, beside: str, name: str) -> AbstractContextManager[Service]:
        """The reward loop of a run."""
        folder = self.out / "logs" / name
        match beside:
            case "killed":
                return service.killed(folder)
            case "stalled":
                return service.stalled(folder)
            case "neighbour":
                return service.beside_neighbour()
        return service.single()

    def run(self, name: str, seed: int, steps: int, *, every: int = 0, altered: dict[int, float] | None = None) -> dict[str, Any]:
        """Trains an arm and says what came of it; every so many steps it is evaluated, at the end always."""
        arm = ARMS[name]
        label = f"{name}-{seed}-{steps}" + ("-altered" if altered else "")
        began, cpu = time.monotonic(), time.process_time()
        with (
            self.service(arm.beside, label) as at,
            rewardloop.Client(
                at.url, run=label, profile=arm.profile, on_sample_failure="group_mean" if arm.on_failed == "impute" else ""
            ) as client,
            rewardloop.Client(at.url, run=f"{label}-val") as judge,
        ):
            trainer = Trainer(arm, self.base, seed, client, altered)
            curve = [{"step": 0, **evaluate(trainer.params, judge, "0")}] if every else []
            took: list[dict[str, Any]] = []
            with tqdm(total=steps, desc=label, unit="step", disable=None) as bar:
                for i in range(steps):
                    start = time.monotonic()
                    took.append(
                        {
                            **trainer.step(i),
                            "sha256": policy.digest(trainer.params),
                            "seconds": round(time.monotonic() - start, 4),
                        }
                    )
                    bar.update()
                    bar.set_postfix(reward=took[-1]["reward"] and round(took[-1]["reward"], 3), failed=took[-1]["failed"])
                    if every and (i + 1) % every == 0 and i + 1 < steps:
                        curve.append({"step": i + 1, **evaluate(trainer.params, judge, str(i + 1))})
            end = evaluate(trainer.params, judge, "end")
            curve.append({"step": steps, **end})
            said = {
                "arm": name,
                "seed": seed,
                "updates": steps * arm.settings.updates,
                "sha256": policy.digest(trainer.params),
                **{k: v for k, v in end.items() if k != "scores"},
                "seconds": round(time.monotonic() - began, 1),
                "cpu_s": round(time.process_time() - cpu, 1),
                "killed": at.killed,
                "notes": at.notes,
                "curve": curve,
                "steps": took,
            }
        policy.save(str(self.out / f"{label}.npz"), trainer.params)
        (self.out / f"{label}.json").write_text(json.dumps(said) + "\n")
        return said


class Report:
    """What an experiment claims, and whether it holds."""

    def __init__(self) -> None:
        self.claims: list[dict[str, Any]] = []

    def claim(self, words: str, holds: bool, **figures: Any) -> None:
        """Notes a claim with its figures, and prints it."""
        self.claims.append({"claim": words, "holds": bool(holds), **figures})
        shown = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())
        print(f"{'holds' if holds else 'MISSED'}: {words}" + (f" ({shown})" if shown else ""), flush=True)


def check(lab: Lab, report: Report) -> None:
    """Three minutes: it learns, and the same whether rewards are streamed or not."""
    streamed = lab.run("streamed", 0, 30, every=30)
    gained = np.subtract(streamed["curve"][-1]["scores"], streamed["curve"][0]["scores"])
    p = pairs.sign_flips(gained)
    report.claim(
        "the reward of held-out strings rises in 30 steps, p < 0.01",
        p < 0.01,
        before=streamed["curve"][0]["reward"],
        after=streamed["reward"],
        p=p,
    )
    after = lab.run("after", 0, 8)
    report.claim(
        "rewards after the rollout give the same weights after 8 steps",
        after["sha256"] == streamed["steps"][7]["sha256"],
        sha256=after["sha256"],
    )
    altered = lab.run("after", 0, 2, altered={7: 1e-6})
    report.claim(
        "one reward that is changed by 1e-6 gives other weights",
        altered["sha256"] != streamed["steps"][1]["sha256"],
        sha256=altered["sha256"],
    )


def learns(lab: Lab, report: Report) -> None:
    """Three seeds, 130 steps each."""
    ended = [lab.run("streamed", seed, 130, every=26) for seed in range(3)]
    rewards, grains = [r["reward"] for r in ended], [r["grain"] for r in ended]
    before = ended[0]["curve"][0]
    report.claim(
        "held-out reward reaches 0.65, median of 3 seeds",
        float(np.median(rewards)) >= 0.65,
        before=before["reward"],
        after=pairs.spread(rewards),
    )
    worse = max(grains) - before["grain"]
    report.claim("grain does not grow by more than 0.04", worse <= 0.04, before=before["grain"], after=pairs.spread(grains))
    report.claim(
        "a seed takes at most 10 minutes",
        max(r["seconds"] for r in ended) <= 600,
        seconds=pairs.spread([r["seconds"] for r in ended]),
    )
    off = lab.run("one_step_off", 0, 130, every=26)
    report.claim("one step off learns, too", off["reward"] > before["reward"] + 0.1, after=off["reward"])


def same(lab: Lab, report: Report) -> None:
    """The same weights whatever fails."""
    steps = 100
    ended = {name: lab.run(name, 0, steps) for name in ("after", "streamed", "neighbour", "stalled", "killed")}
    want = ended["after"]["sha256"]
    for name, r in ended.items():
        report.claim(
            f"the weights of {name} after {r['updates']} updates", r["sha256"] == want, sha256=r["sha256"], seconds=r["seconds"]
        )
    report.claim(
        "at least 20 processes were killed beside killed", ended["killed"]["killed"] >= 20, killed=ended["killed"]["killed"]
    )
    altered = lab.run("streamed", 0, 2, altered={5: 1e-6})
    report.claim(
        "one reward of the first step, changed by 1e-6, gives other weights",
        altered["sha256"] != ended["after"]["steps"][1]["sha256"],
    )


def blind(lab: Lab, report: Report) -> None:
    """Half of all samples fail."""
    seeds, steps = range(6), 40
    ended = {name: [lab.run(name, seed, steps, every=steps) for seed in seeds] for name in ("impute", "mask", "zero")}
    for name, runs in ended.items():
        report.claim(
            f"{name} ends", True, reward=pairs.spread([r["reward"] for r in runs]), grain=pairs.spread([r["grain"] for r in runs])
        )
    for name in ("impute", "mask"):
        p = pairs.sign_flips(np.array([a["reward"] - b["reward"] for a, b in zip(ended[name], ended["zero"], strict=True)]))
        report.claim(f"zero ends worse than {name}, p < 0.05 over {len(seeds)} seeds", p < 0.05, p=p)


def hacked(lab: Lab, report: Report) -> None:
    """A reward that is hacked: OCR does not see grain."""
    ended = {name: lab.run(name, 0, 90, every=18) for name in ("streamed", "no_late_kl", "cured")}
    grain = {name: r["grain"] for name, r in ended.items()}
    report.claim(
        "without the late KL the reward is higher",
        ended["no_late_kl"]["reward"] > ended["streamed"]["reward"],
        with_kl=ended["streamed"]["reward"],
        without=ended["no_late_kl"]["reward"],
    )
    report.claim(
        "and the pictures are grainier",
        grain["no_late_kl"] > grain["streamed"] + 0.04,
        with_kl=grain["streamed"],
        without=grain["no_late_kl"],
    )
    report.claim(
        "the second component cures it",
        grain["cured"] < grain["no_late_kl"] - 0.04,
        reward=ended["cured"]["reward"],
        grain=grain["cured"],
    )


def overlap(lab: Lab, report: Report) -> None:
    """What a step takes in each arm, beside what rewardloop plan says of the same times."""
    modes = {"timed_after": "batch", "timed_streamed": "streaming", "timed_one_step_off": "one_step_off"}
    for name, mode in modes.items():
        arm, steps = ARMS[name], lab.run(name, 0, 12)["steps"][3:]  # the first ones compile
        median = {key: float(np.median([s[key] for s in steps])) for key in ("seconds", "sample", "update")}
        command = [
            service.binary(),
            "plan",
            "--json",
            "--samples",
            str(arm.settings.samples),
            "--group",
            str(arm.settings.group),
            "--arrivals",
            f"bursts:{arm.settings.prompts}",
            "--generation",
            f"{median['sample']:.3f}s",
            "--update",
            f"{median['update']:.3f}s",
            "--reward",
            f"{arm.reward:g}s",
            "--concurrency",
            "64",
        ]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        planned = next(row["step_s"] for row in said["rows"] if row["mode"] == mode)
        report.claim(
            f"rewardloop plan says within 10 % what a step of {name.removeprefix('timed_')} takes",
            abs(median["seconds"] / planned - 1) <= 0.1,
            measured=median["seconds"],
            planned=planned,
            mode=mode,
        )


EXPERIMENTS: dict[str, Callable[[Lab, Report], None]] = {
    "check": check,
    "learns": learns,
    "same": same,
    "blind": blind,
    "hacked": hacked,
    "overlap": overlap,
}


def conduct(lab: Lab, name: str) -> int:
    """Runs an experiment by its name; 1 if something did not hold."""
    report = Report()
    for each in EXPERIMENTS if name == "all" else (name,):
        if name != "all" or each != "check":
            EXPERIMENTS[each](lab, report)
    (lab.out / f"{name}.json").write_text(json.dumps(report.claims, indent=1) + "\n")
    print("report:", reports.write(lab.out, lab.base, report.claims))
    return 0 if all(c["holds"] for c in report.claims) else 1
