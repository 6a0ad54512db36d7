"""The experiments: which arms run, what is measured, and which bounds must hold."""

import json
import os
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
#: Nothing but the reward holds the late steps of the sampler, where grain is made.
FREE = replace(SHORT, kl_late=0.0)
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
        Arm("no_late_kl", settings=FREE),
        Arm("all_steps", settings=replace(FREE, trained=8)),
        Arm("cured", profile="clean", settings=replace(FREE, trained=8)),
        Arm("timed_after", schedule="after", profile="elsewhere", generator=0.25, reward=1.0),
        Arm("timed_streamed", profile="elsewhere", generator=0.25, reward=1.0),
        Arm("timed_one_step_off", schedule="one_step_off", profile="elsewhere", generator=0.25, reward=1.0),
    )
}


class Lab:
    """Runs arms from the same weights, and saves the measurements of each as <arm>-<seed>-<steps>.json."""

    def __init__(self, base: Params, out: Path) -> None:
        self.base, self.out = base, out

    def service(self, beside: str, name: str) -> AbstractContextManager[Service]:
        """Returns the reward loop of a run."""
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
        """Trains an arm and returns its measurements. Evaluates it every ``every`` steps (0: not), and at the end."""
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
    """The claims of an experiment, whether they hold, and the figures as rows of docs/results."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def row(
        self,
        name: str,
        words: str,
        *values: float,
        least: float | None = None,
        most: float | None = None,
        unit: str = "",
        beside: dict[str, float] | None = None,
        said: str = "",
    ) -> None:
        """Adds and prints a figure: the median of values, its bound if it has one, and the remark said."""
        value = float(np.median(values))
        made: dict[str, Any] = {"row": name, "issue": words, "value": value, "values": [float(v) for v in values]}
        if unit:
            made["unit"] = unit
        held, bound = True, ""
        if least is not None or most is not None:
            limit = least if most is None else most
            held = value <= limit if most is not None else value >= limit
            made["target"] = {"most": most is not None, "value": limit}
            bound = f", {'at most' if most is not None else 'at least'} {limit:.4g}"
        self.rows.append({**made, "held": held, **({"beside": beside} if beside else {}), "said": said})
        own = f"{value:.4g}{unit}" + (f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else "")
        others = "".join(f", {k} {v:.4g}" for k, v in (beside or {}).items())
        print(f"{'holds' if held else 'MISSED'}: {words}: {own}{bound}{others}{said and ', ' + said}", flush=True)

    def fact(self, name: str, words: str, holds: bool, **more: Any) -> None:
        """Adds a figure that is 1 if holds is true, else 0, with the bound of at least 1."""
        self.row(name, words, float(holds), least=1.0, **more)

    @property
    def holds(self) -> bool:
        """Whether every bound holds."""
        return all(r["held"] for r in self.rows)


def check(lab: Lab, report: Report) -> None:
    """Three minutes: the policy learns, with the same weights whether rewards are streamed or not."""
    streamed = lab.run("streamed", 0, 30, every=30)
    gained = np.subtract(streamed["curve"][-1]["scores"], streamed["curve"][0]["scores"])
    report.row(
        "check/p",
        "the reward of held-out strings rises in 30 steps: p of the paired difference",
        pairs.sign_flips(gained),
        most=0.01,
        beside={"before": streamed["curve"][0]["reward"], "after": streamed["reward"]},
    )
    after = lab.run("after", 0, 8)
    report.fact(
        "check/same",
        "rewards after the rollout give the same weights after 8 steps",
        after["sha256"] == streamed["steps"][7]["sha256"],
        said=after["sha256"],
    )
    altered = lab.run("after", 0, 2, altered={7: 1e-6})
    report.fact(
        "check/altered",
        "one reward that is changed by 1e-6 gives other weights",
        altered["sha256"] != streamed["steps"][1]["sha256"],
        said=altered["sha256"],
    )


def learns(lab: Lab, report: Report) -> None:
    """Trains three seeds, 130 steps each."""
    ended = [lab.run("streamed", seed, 130, every=26) for seed in range(3)]
    before = ended[0]["curve"][0]
    report.row(
        "learns/reward",
        "held-out OCR reward after 130 steps, median of 3 seeds",
        *(r["reward"] for r in ended),
        least=0.65,
        beside={"before": before["reward"]},
    )
    report.row(
        "learns/grain",
        "grain, which OCR does not see, grows by, the worst of 3 seeds",
        max(r["grain"] for r in ended) - before["grain"],
        most=0.04,
        beside={"before": before["grain"]},
    )
    report.row(
        "learns/seconds",
        "a seed takes, evaluations included, the slowest of 3",
        max(r["seconds"] for r in ended),
        most=600,
        unit="s",
        beside={"median": float(np.median([r["seconds"] for r in ended]))},
    )
    off = lab.run("one_step_off", 0, 130, every=26)
    report.row(
        "learns/one-step-off", "held-out OCR reward after 130 steps one step off", off["reward"], least=before["reward"] + 0.1
    )


def same(lab: Lab, report: Report) -> None:
    """Tests for the same weights under every kind of failure."""
    steps = 100
    ended = {name: lab.run(name, 0, steps) for name in ("after", "streamed", "neighbour", "stalled", "killed")}
    want = ended["after"]["sha256"]
    for name, r in ended.items():
        report.fact(
            f"same/{name}",
            f"the weights of {name} are those of after, bit by bit",
            r["sha256"] == want,
            beside={"updates": r["updates"], "seconds": r["seconds"]},
            said=r["sha256"],
        )
    report.row("same/kills", "processes killed with SIGKILL during killed", ended["killed"]["killed"], least=20)
    altered = lab.run("streamed", 0, 2, altered={5: 1e-6})
    report.fact(
        "same/altered",
        "one reward of the first step that is changed by 1e-6 gives other weights",
        altered["sha256"] != ended["after"]["steps"][1]["sha256"],
    )


def blind(lab: Lab, report: Report) -> None:
    """Trains while half of all samples fail."""
    seeds, steps = range(6), 40
    ended = {name: [lab.run(name, seed, steps, every=steps) for seed in seeds] for name in ("impute", "mask", "zero")}
    for name, runs in ended.items():
        report.row(
            f"blind/{name}",
            f"held-out OCR reward after {steps} steps in which half of all calls failed, {name}, {len(seeds)} seeds",
            *(r["reward"] for r in runs),
            beside={"grain": float(np.median([r["grain"] for r in runs]))},
        )
    for name in ("impute", "mask"):
        p = pairs.sign_flips(np.array([a["reward"] - b["reward"] for a, b in zip(ended[name], ended["zero"], strict=True)]))
        report.row(f"blind/zero-{name}", f"zero ends worse than {name}: p over the pairs of seeds", p, most=0.05)


def hacked(lab: Lab, report: Report) -> None:
    """Trains with a reward that can be hacked: OCR does not detect grain."""
    ended = {name: lab.run(name, 0, 90, every=18) for name in ("streamed", "no_late_kl", "all_steps", "cured")}
    grain = {name: r["grain"] for name, r in ended.items()}
    for name, r in ended.items():
        report.row(f"hacked/{name}", f"held-out OCR reward after 90 steps of {name}", r["reward"], beside={"grain": r["grain"]})
    report.row(
        "hacked/grain",
        "without the late KL grain ends higher than with it by",
        grain["no_late_kl"] - grain["streamed"],
        least=0.04,
    )
    report.row(
        "hacked/cure",
        "with a second component, the whiteness of the pixels without ink, grain ends higher than with the late KL by",
        grain["cured"] - grain["streamed"],
        most=0.01,
        beside={"without_component": grain["all_steps"] - grain["streamed"]},
    )


def overlap(lab: Lab, report: Report) -> None:
    """Compares the time of a step in each arm with the output of rewardloop plan for the same times."""
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
        report.row(
            f"overlap/{mode}",
            f"what rewardloop plan says of a step of {mode} is off by, of what it takes",
            abs(median["seconds"] / planned - 1),
            most=0.1,
            beside={"measured_s": median["seconds"], "planned_s": planned},
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
    """Runs an experiment by its name; returns 1 if a bound does not hold.

    With the name all, REWARDLOOP_RESULTS=1 also writes the figures into docs/results.
    """
    report, before = Report(), reports.load_average()
    for each in EXPERIMENTS if name == "all" else (name,):
        if name != "all" or each != "check":
            EXPERIMENTS[each](lab, report)
    (lab.out / f"{name}.json").write_text(json.dumps(report.rows, indent=1) + "\n")
    print("report:", reports.write(lab.out, lab.base, report.rows))
    if name == "all" and os.environ.get("REWARDLOOP_RESULTS") == "1":
        print("results:", reports.write_results(report.rows, before))
    return 0 if report.holds else 1
