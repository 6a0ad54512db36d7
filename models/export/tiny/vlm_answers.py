"""golden.json of the tiny judges: what transformers' eager float32 model says of every case."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import PIL
import PIL.Image
import tokenizers
import torch
import transformers
from torch import nn

import vlm
from tiny.vlm_tokenizers import NO, YES

NEW_TOKENS = 16
CANDIDATES = (" Yes", "No", " a red car", "the words are crisp and 17 letters long", " Ünïcode ✓")

# An answer whose best two tokens are nearer than this says nothing about correctness.
MARGIN = 1e-2


@dataclass
class Case:
    """One question. split and edge are Idefics3's: cut the pictures, and the length their
    longest edge is brought to first."""

    name: str
    text: str
    images: list[str] = field(default_factory=list)
    split: bool = False
    edge: int = 0
    system: str = ""
    before: str = ""

    def messages(self) -> list[dict]:
        content: list[dict] = [{"type": "text", "text": self.before}] if self.before else []
        content += [{"type": "image"} for _ in self.images]
        content.append({"type": "text", "text": self.text})
        turns = [{"role": "user", "content": content}]
        if self.system:
            turns.insert(0, {"role": "system", "content": [{"type": "text", "text": self.system}]})
        return turns


class Answers:
    """Asks the eager model, and writes what it says below a model's folder."""

    def __init__(self, model: nn.Module, tokenizer: transformers.PreTrainedTokenizerFast, out: Path) -> None:
        self.model, self.tokenizer, self.out = model, tokenizer, out
        self.yes, self.no = self.single(YES), self.single(NO)
        self.digits = {digit: self.single((str(digit), f" {digit}")) for digit in range(1, 6)}
        eos = model.generation_config.eos_token_id
        self.stop = eos if isinstance(eos, list) else [eos]
        if len(self.yes) < 4 or len(self.no) < 4 or not all(self.digits.values()):
            raise SystemExit(f"answers are not single tokens: {self.yes}, {self.no}, {self.digits}")

    def single(self, texts: tuple[str, ...]) -> list[int]:
        ids = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return sorted({one[0] for one in ids if len(one) == 1})

    def tokens(self) -> dict:
        return {"yes": self.yes, "no": self.no, "digits": self.digits, "stop": self.stop}

    def raw(self, folder: str, name: str, data: np.ndarray) -> dict:
        """Writes data as it lies in memory; says which file, type and shape."""
        kind = {"float32": "F32", "uint8": "U8", "int64": "I64"}[data.dtype.name]
        end = {"F32": "f32", "U8": "u8", "I64": "i64"}[kind]
        path = self.out / folder / f"{name}.{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(np.ascontiguousarray(data).tobytes())
        return {"file": f"{folder}/{path.name}", "dtype": kind, "shape": list(data.shape)}

    def scores(self, logits: torch.Tensor) -> dict:
        """Of one position's logits [V]."""
        logits = logits.double()
        total = logits.logsumexp(0)
        yes, no = logits[self.yes].logsumexp(0), logits[self.no].logsumexp(0)
        digits = torch.stack([logits[ids].logsumexp(0) for ids in self.digits.values()])
        expected = float((digits.softmax(0) * torch.arange(1, 6)).sum())
        return {
            "p_yes": float((yes - no).sigmoid()),
            "mass": float((torch.logaddexp(yes, no) - total).exp()),
            "digit": expected,
            "digit_mass": float((digits.logsumexp(0) - total).exp()),
            "digit_score": (expected - 1) / 4,
        }

    def ask(self, name: str, inputs: dict) -> dict:
        """Everything that is asked of one prompt; inputs is what the processor made."""
        ids = inputs["input_ids"]
        with torch.no_grad():
            logits = self.model(**inputs).logits[0, -1]
            made = self.model.generate(
                **inputs, do_sample=False, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True
            )
        tokens = made.sequences[0, ids.shape[1] :].tolist()
        steps = torch.stack(made.logits)[:, 0]
        best = steps.topk(2).values
        margin = float((best[:, 0] - best[:, 1]).min())
        if margin < MARGIN:
            raise SystemExit(f"{name}: two tokens are {margin:.1e} apart: take another seed")
        chosen = steps.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        stopped = tokens[-1] in self.stop
        kept = tokens[:-1] if stopped else tokens
        record = self.scores(logits)
        return {
            "input_ids": ids[0].tolist(),
            "last_logits": self.raw("logits", name, logits.numpy()),
            "greedy": kept,
            "greedy_logprobs": chosen[: len(kept)].tolist(),
            "greedy_stopped": stopped,
            "greedy_margin": margin,
            "greedy_text": self.tokenizer.decode(kept, skip_special_tokens=True),
            **record,
            "candidates": [self.candidate(text, inputs) for text in CANDIDATES],
        }

    def candidate(self, text: str, inputs: dict) -> dict:
        """log P(text | prompt): the sum over the text's own tokens."""
        tail = torch.tensor([self.tokenizer.encode(text, add_special_tokens=False)])
        longer = dict(inputs)
        longer["input_ids"] = torch.cat([inputs["input_ids"], tail], 1)
        longer["attention_mask"] = torch.ones_like(longer["input_ids"])
        count = tail.shape[1]
        with torch.no_grad():
            logits = self.model(**longer).logits[0, -count - 1 : -1].double()
        logprob = float(logits.log_softmax(-1).gather(1, tail[0][:, None]).sum())
        return {"text": text, "ids": tail[0].tolist(), "logprob": logprob}


def pictures(folder: Path, names: list[str]) -> list[PIL.Image.Image]:
    return [PIL.Image.open(folder / name).convert("RGB") for name in names]


def versions() -> dict:
    modules = {"transformers": transformers, "tokenizers": tokenizers, "pillow": PIL, "numpy": np, "onnx": onnx}
    return {"torch": torch.__version__.split("+")[0]} | {name: m.__version__ for name, m in modules.items()}


def report(case: dict) -> None:
    print(
        f"  {case['name']}: {len(case['input_ids'])} ids, P(yes) {case['p_yes']:.4f} mass {case['mass']:.4f} "
        f"digit {case['digit']:.3f}, {len(case['greedy'])} tokens, margin {case['greedy_margin']:.3f}"
    )


def spread(cases: list[dict]) -> None:
    """The answers must depend on what is asked."""
    for key in ("p_yes", "digit"):
        values = [case[key] for case in cases]
        if max(values) - min(values) < 0.2:
            raise SystemExit(f"{key} is between {min(values):.3f} and {max(values):.3f}: take another seed")


def check_batch(model: nn.Module, names: list[str], made: dict, keys: tuple[str, ...]) -> None:
    """Prompts of one length, asked together, get the answers they get alone."""
    inputs = {key: torch.cat([made[name][1][key] for name in names]) for key in keys}
    with torch.no_grad():
        logits = model(**inputs).logits[:, -1]
        alone = torch.cat([model(**made[name][1]).logits[:, -1] for name in names])
    vlm.compare("batch of " + ", ".join(names), logits.numpy(), alone, 1e-5)


def write_golden(out: Path, answers: Answers, cases: list[dict], batches: list, notes: list[str]) -> None:
    for case in cases:
        report(case)
    spread(cases)
    golden = {
        "made_with": versions(),
        "notes": notes,
        "tokens": answers.tokens(),
        "batches": batches,
        "cases": cases,
    }
    vlm.write_json(out / "golden.json", golden)
