"""Writes report.html: what the arms of a folder have learned, as curves, pictures and a table of the claims."""

import base64
import html
import io
import json
import os
import platform
import subprocess
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pictures
import policy
from policy import Params
from train import held_out_pictures

#: Pictures of a sheet: columns, rows.
SHEET = (6, 4)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top }
td:first-child { min-width: 18rem }
figure { margin: 1rem 0; display: inline-block; vertical-align: top } figcaption { color: #555; max-width: 26rem }
img { image-rendering: pixelated; max-width: 100% } .missed { color: #a00; font-weight: 600 } code { font-size: .85em }
"""


def sheet(params: Params) -> bytes:
    """Returns a PNG with the first held-out strings, each above its picture."""
    from PIL import Image, ImageDraw

    columns, rows = SHEET
    drawn, scale = held_out_pictures(params)[: columns * rows], 3
    wide, high = pictures.WIDTH * scale + 8, pictures.HEIGHT * scale + 20
    page = Image.new("L", (columns * wide, rows * high), 255)
    draw = ImageDraw.Draw(page)
    for i, (ids, picture) in enumerate(zip(pictures.held_out(), drawn, strict=False)):
        x, y = i % columns * wide, i // columns * high
        draw.text((x + 2, y + 2), f"asked: {pictures.word(ids)}", 90)
        small = Image.fromarray(pictures.pixels(picture)[..., 0])
        page.paste(small.resize((pictures.WIDTH * scale, pictures.HEIGHT * scale), Image.Resampling.NEAREST), (x + 2, y + 16))
    out = io.BytesIO()
    page.save(out, "PNG")
    return out.getvalue()


def curves(runs: list[dict[str, Any]], key: str, label: str) -> str:
    """Returns an SVG with the curve of each run, one colour for each arm."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    colours = {arm: f"C{i}" for i, arm in enumerate(dict.fromkeys(r["arm"] for r in runs))}
    for r in runs:
        points = [(p["step"], p[key]) for p in r["curve"]]
        axes.plot(*zip(*points, strict=True), color=colours[r["arm"]], alpha=0.8)
    for arm, colour in colours.items():
        axes.plot([], [], color=colour, label=arm.replace("_", " "))
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    plt.close(figure)
    drawn = out.getvalue()
    return drawn[drawn.index("<svg") :]


def picture(params: Params, caption: str) -> str:
    """Returns a sheet as an HTML figure."""
    data = base64.b64encode(sheet(params)).decode()
    words = html.escape(caption)
    return f'<figure><img alt="{words}" src="data:image/png;base64,{data}"><figcaption>{words}</figcaption></figure>'


#: What docs/results says of the suite.
ABOUT = (
    "FlowGRPO through a reward loop (examples/learn), one process of JAX and the program rewardloop as it runs, on two cores. "
    "Rewards are those of 256 strings that were never trained on, drawn by the deterministic sampler and read by PP-OCR through "
    "the loop; grain is how far their pixels without ink are from white, 0 to 2. overlap is a scorer that takes 1 s beside a "
    "generator that takes 0.25 s a group, so that they do not share the processors."
)
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "learn.json"


def load_average() -> str:
    """Returns the machine's load average over the last one, five and fifteen minutes."""
    return " ".join(f"{v:.2f}" for v in os.getloadavg())


def write_results(rows: list[dict[str, Any]], load_before: str) -> Path:
    """Writes the rows in the format of docs/results; bench -tables generates the page from them."""
    import jax

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(RESULTS.parent), *args], capture_output=True, text=True).stdout.strip()

    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    said = {
        "suite": "learn",
        "about": ABOUT,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": git("rev-parse", "--short=12", "HEAD") or "unknown",
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "machine": {
            "cpu": names[0] if names else platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "go": f"JAX {jax.__version__}",
            "os": f"{platform.system().lower()}/{platform.machine()}",
        },
        "load_before": load_before,
        "load_after": load_average(),
        "repetitions": 1,
        "rows": [{k: v for k, v in row.items() if k != "said"} for row in rows],
    }
    RESULTS.write_text(json.dumps(said, indent=2) + "\n")
    return RESULTS


def write(folder: Path, base: Params, rows: list[dict[str, Any]]) -> Path:
    """Writes report.html for the runs in a folder, and returns its path."""
    runs = [json.loads(p.read_text()) for p in sorted(folder.glob("*-*-*.json"))]
    of = defaultdict(list)
    for r in runs:
        of[r["arm"]].append(r)
    parts = ["<h1>FlowGRPO through a reward loop</h1>"]
    parts.append(
        "<p>A policy of 289,000 parameters draws strings of four digits. It was pre-trained on captions in which half of "
        "the digits are wrong, and learns from what PP-OCR reads of its pictures. Reward and grain are those of 256 strings "
        "that it was never trained on. The gain is mostly that of undoing the wrong captions; the held-out strings are new "
        "combinations of digits that it has drawn before.</p>"
    )
    parts.append("<h2>What was measured</h2><table><tr><th>figure<th>measured<th>bound<th>holds<th>beside")
    for r in rows:
        bound = r.get("target")
        limit = f"{'≤' if bound['most'] else '≥'} {bound['value']:.4g}" if bound else ""
        holds = ("yes" if r["held"] else '<span class="missed">no</span>') if bound else ""
        spread = f" ({min(r['values']):.4g} to {max(r['values']):.4g})" if len(r["values"]) > 1 else ""
        beside = ", ".join(f"{k} {v:.4g}" for k, v in r.get("beside", {}).items())
        said = f"<br><code>{html.escape(r['said'])}</code>" if r["said"] else ""
        measured = f"{r['value']:.4g}{r.get('unit', '')}{spread}"
        parts.append(f"<tr><td>{html.escape(r['issue'])}<td>{measured}<td>{limit}<td>{holds}<td>{html.escape(beside)}{said}")
    parts.append("</table>")
    curved = [r for r in runs if len(r["curve"]) > 2]
    if curved:
        parts.append("<h2>What was learned</h2>")
        parts.append(curves(curved, "reward", "held-out reward") + curves(curved, "grain", "grain"))
    parts.append("<h2>What it draws</h2>" + picture(base, "Before: legible digits, often not those that were asked for."))
    words = {
        "streamed": "After streamed rewards.",
        "no_late_kl": "Hacked: without the late KL the digits are right and the paper grows grainy, which OCR does not see.",
        "all_steps": "Hacked, where all steps of the sampler are trained.",
        "cured": "Cured: the same with a second component that rewards white paper.",
        "zero": "Half of the rewards were lost and counted as 0.",
        "mask": "Half of the rewards were lost and masked.",
    }
    for arm, caption in words.items():
        if of[arm]:
            last = max(of[arm], key=lambda r: (r["updates"], -r["seed"]))
            name = folder / f"{arm}-{last['seed']}-{len(last['steps'])}.npz"
            parts.append(picture(policy.load(str(name)), f"{caption} Reward {last['reward']:.2f}, grain {last['grain']:.3f}."))
    path = folder / "report.html"
    path.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>FlowGRPO through a reward loop</title>'
        + f"<style>{STYLE}</style>"
        + "\n".join(parts)
        + "\n"
    )
    return path
