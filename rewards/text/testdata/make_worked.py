"""Writes worked.jsonl: what the published text rewards give for made-up responses.

    pip install pydantic && pip install --no-deps verl==0.9.1 rm-gallery==0.1.7
    git clone https://github.com/verl-project/verl-omni
    python make_worked.py verl-omni > worked.jsonl

Every file of rewards is loaded alone, without the package around it. Stood in
for are math_verify (equality of the texts) and the classes that RM-Gallery wraps
its numbers in. `python make_worked.py verl-omni N SEED` writes N random rows for
each case instead of the committed choice. Rows on which the original raises are
left out.
"""

import contextlib
import importlib.util
import io
import json
import os
import random
import sys
import types

import pydantic


def folder(package):
    return importlib.util.find_spec(package).submodule_search_locations[0]


def load(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module


def stand_in(name, **attributes):
    parts = name.split(".")
    for i in range(1, len(parts)):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(parts[i - 1]))
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(attributes)


class Registry:
    @staticmethod
    def register(_):
        return lambda cls: cls


class Reward(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    def __class_getitem__(cls, _):
        return cls


OMNI = sys.argv[1]
VERL = os.path.join(folder("verl"), "utils", "reward_score")
GALLERY = os.path.join(folder("rm_gallery"), "gallery", "rm")

stand_in("mathruler.grader", extract_boxed_content=None, grade_answer=None)
gsm8k, dapo, math, search, geo3k = (
    load(os.path.join(VERL, f + ".py")) for f in ("gsm8k", "math_dapo", "math_reward", "search_r1_like_qa_em", "geo3k"))

stand_in("verl.utils.reward_score.math_verify", compute_score=lambda a, b, timeout: float(a == b))
choice, mmk12 = (load(os.path.join(OMNI, "verl_omni/utils/reward_score", f + ".py")) for f in ("choice_reward", "mmk12_reward"))

tokenizer = load(os.path.join(folder("rm_gallery"), "core/utils/tokenizer.py"))
stand_in("rm_gallery.core.utils.tokenizer", get_tokenizer=tokenizer.get_tokenizer)
stand_in("rm_gallery.core.data.schema", DataSample=object)
stand_in("rm_gallery.core.reward.base", BasePointWiseReward=Reward)
stand_in("rm_gallery.core.reward.registry", RewardRegistry=Registry)
stand_in("rm_gallery.core.reward.schema", RewardDimensionWithScore=Reward, RewardResult=Reward)
form, general = load(os.path.join(GALLERY, "format/format.py")), load(os.path.join(GALLERY, "general.py"))


def gallery(cls, extra, response, reference="", **options):
    answer = types.SimpleNamespace(content=response, label={"reference": reference})
    sample = types.SimpleNamespace(output=[types.SimpleNamespace(answer=answer)])
    result = cls(**options)._evaluate(sample)
    return {"score": result.details[0].score, **{name: result.extra_data.get(key) for name, key in extra.items()}}


R = random.Random(5)
SPACES = [" ", "  ", "\n", "\t", "\x1c", "\x85", "\xa0", "\u3000", "\v"]
LETTERS = ["Σ", "ΟΔΟΣ", "İ", "Ａ", "é", "a\u0301", "²", "③", "٣", "ß", "_", "東京"]
NUMBERS = ["7", "-3", "1,234", "0.5", ".5", "5.", ".", ",", "007", "1/2", "-4/7", "2²,1", "٣"]
LATEX = ["\\frac12", "\\frac1{72}", "\\frac{1}{2}", "\\frac", "\\frac1", "\\tfrac34", "\\sqrt3", "\\sqrt{3}", "\\sqrt", "\\text{ cm}",
         "\\text{m}", "\\text{s}", "\\text{}^2", "\\textbf{b}", "\\overline{x}", "\\mbox{yes}", "\\text{and}", "\\left(", "\\right)",
         "^\\circ", "^{\\circ}", "\\%", "\\\\%", "\\$", "$", "$", "=", "k=", "{", "}", "\\!", ",\\!", "\\;", "{,}", "\\ ", "\\ldots",
         "\\boxed{", "\\boxed ", "\\boxed", "\\fbox{", "units", "square", "an ", "a ", ".$", "x", "+1", "/", "\n", " ", "\""]
TAGS = ["<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "\\boxed{", "}"]
WORDS = ["the", "a", "an", "The", "cat", "sat", "theatre", "don't", "A.", "B", "e-mail", "42", "x", "U.S.", "\u201cq\u201d"]
CALLS = ['{"name": "f", "arguments": {}}', '{"name": 1, "arguments": null}', '{"name": "f"}', '{"name": "f", "arguments": }', "{}", '"x"',
         '{"name": "f", "arguments": {"a": "<b>"}, "name": "g"}', '{"Name": "f", "arguments": 1}', '{"name": "\\ud83d", "arguments": "\t"}']


def mix(sources, most):
    return "".join(R.choice(R.choice(sources)) for _ in range(R.randint(0, most)))


def maybe(*texts):
    return R.choice(texts)


def wrap(tag, inside):
    return "<" + tag + ">" + maybe("", " ", "\n", "\u3000") + inside + maybe("", " ", "\x1c") + "</" + tag + ">"


def prose():
    return " ".join(R.choice(R.choice([WORDS, WORDS, LETTERS])) + maybe("", "", "", ".", "!") for _ in range(R.randint(0, 9)))


def gsm8k_row():
    answer = R.choice(NUMBERS)
    response = mix([SPACES, NUMBERS, LETTERS, ["#### ", "#### $", "####"]], 12) + maybe("", "x" * 290) + maybe("#### ", "so ", "") + answer + maybe("", " ok", ".")
    return response, maybe(answer, answer.replace(",", ""), "7")


def math_row(before, after):
    def row():
        answer = mix([LATEX, NUMBERS], 5)
        same = maybe(answer, answer.replace(" ", ""), mix([LATEX, NUMBERS], 4))
        response = mix([LATEX, SPACES, LETTERS], 4) + maybe("", "", "y" * 310) + R.choice(before) + answer + R.choice(after)
        return response, same
    return row


def qa_row():
    answer = prose()
    response = maybe("", prose(), wrap("answer", prose())) + maybe(wrap("answer", answer), wrap("answer", answer) * R.randint(1, 12), answer)
    want = [maybe(answer, answer.upper(), prose()) for _ in range(R.randint(1, 3))]
    return response, {"target": maybe(want[0], want)}


def choice_row():
    answer = maybe("B", " B ", "é", "")
    return mix([TAGS, WORDS], 3) + maybe(wrap("answer", answer), answer), maybe(wrap("answer", answer), wrap("answer", "B"), answer)


def mmk12_row():
    answer = maybe("A", "B", "b", "\\boxed{C}", "AB", "12", "30°", "30 ^\\circ", "٣\\circ", "no", "D.", "éE")
    response = mix([TAGS, WORDS, ["30°", "1.5\u3000\\circ°"]], 3) + maybe(wrap("answer", answer), answer)
    options = maybe({}, {"options": json.dumps({"A": "12", "B": "30", "C": "", "D": None})}, {"options": "{"}, {"options": {"A": "12"}}, {"options": None})
    return response, maybe("A", "b", " C ", "D", "E", "30", "F", "30°"), options


def tags_row():
    good = wrap("think", prose()) + maybe("", " ", "x") + maybe(
        wrap("answer", prose()), wrap("tool_call", R.choice(CALLS)), wrap("tool_call", R.choice(CALLS)) + maybe("", "\n", "junk") + wrap("tool_call", CALLS[0]))
    return maybe("", "", "\n", "x") + maybe(good, good, good, mix([TAGS, SPACES, WORDS], 9)) + maybe("", "", "\n\n", "</tool_call>", " x", "\\boxed{3}")


def repeats():
    phrase = prose() + " "
    return maybe("", "<think>" + phrase * 2 + "</think>") + phrase * R.randint(0, 6) + prose()


def longest():
    return mix([LETTERS, WORDS, SPACES], R.choice([3, 12, 40]))


def pair_row():
    words = prose()
    shuffled = words.split()
    R.shuffle(shuffled)
    return maybe(words, " ".join(shuffled), prose(), words.upper()), maybe(words, words + " " + prose(), prose())


BOX, ANSWER = ["\\boxed{", "\\boxed ", "\\boxed", "\\fbox{", ""], ["Answer: ", "answer :", "ANſWER\u3000:\n", "Answer:$", "Answer: \\boxed{", ""]
CLOSE = ["}", "$", "", "} so", "\n"]
PLAIN = {"tokenizer_type": "simple"}


def cases():
    """(scorer, options, reference, rows) in the order of the file."""
    for method in "strict", "flexible":
        yield "gsm8k", {"method": method, "format_score": 0.1}, lambda r, g, method=method: gsm8k.compute_score(r, g, method, 0.1), gsm8k_row
    for strict in False, True:
        yield "math_dapo", {"strict_box_verify": strict}, lambda r, g, strict=strict: dapo.compute_score(r, g, strict), math_row(ANSWER + (BOX if strict else []), CLOSE)
    yield "math_reward", {}, math.compute_score, math_row(BOX, CLOSE)
    yield "search_r1_qa_em", {"format_score": 0.1}, lambda r, g: search.compute_score(r, g, format_score=0.1), qa_row
    yield "search_r1_qa_subem", {"format_score": 0.1}, lambda r, g: search.compute_score_subem(r, g, format_score=0.1), qa_row
    yield "choice", {}, choice.compute_score, choice_row
    yield "mmk12", {"values": "equal_text"}, lambda r, g, e: mmk12.compute_score(r, g, extra_info=e), mmk12_row
    yield "geo3k_format", {}, geo3k.format_reward, tags_row
    yield "format", {}, lambda r: gallery(form.ReasoningFormatReward, {}, r), tags_row
    yield "format", {"form": "tool_call"}, lambda r: gallery(form.ReasoningToolCallFormatReward, {}, r), tags_row
    for options in {}, {"min_length": 3, "max_length": 7, "penalty_rate": 0.3}:
        yield "length", options, lambda r, o=options: gallery(form.LengthPenaltyReward, {"length": "length"}, r, **o), longest
    for options in {}, {"n": 1, "penalty_threshold": 0.1, "penalty_rate": 0.7}, {"n": 2, "use_soft_penalty": True}, {
            "n": 2, "use_soft_penalty": True, "min_scaling": 0.2, "max_penalty": -0.6, "analyze_scope": "thought"}:
        yield "ngram_repetition", options, lambda r, o=options: gallery(
            form.NgramRepetitionPenaltyReward, {"repetition_rate": "repetition_rate"}, r, **PLAIN, **o), repeats
    yield "rouge_l", {}, lambda r, g: gallery(general.RougeReward, {}, r, g), pair_row
    yield "f1", {}, lambda r, g: gallery(general.F1ScoreReward, {"precision": "precision", "recall": "recall"}, r, g, **PLAIN), pair_row


def main():
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    if len(sys.argv) > 3:
        R.seed(int(sys.argv[3]))
    for scorer, options, reference, make in cases():
        done, tries = 0, 0
        while done < n and tries < 50 * n:
            tries += 1
            row = make()
            row = row if isinstance(row, tuple) else (row,)
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    want = reference(*row)
            except Exception:
                continue
            want = want if isinstance(want, dict) else {"score": want}
            if done > n // 3 and want["score"] in (0, -1) and R.random() < 0.7:
                continue  # Misses are easy; keep room for the others.
            names = ("response", "ground_truth", "extra_info")
            print(json.dumps({"scorer": scorer, "options": options, **dict(zip(names, row)), "want": want}))
            done += 1


main()
