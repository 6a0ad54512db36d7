"""The score is 1 if the query returned the rows of the ground truth, else 0 with the reason."""


def compute_score(ground_truth, extra_info):
    """Scores a sample. ground_truth is {"db", "rows", "ordered"}; extra_info contains the output of the verify tool."""
    found = extra_info["verified_results"]["sql"]
    if not found["ran"]:
        return answer(0.0, False, 0, "the query did not run: " + found["error"])
    got, want = found["rows"], ground_truth["rows"]
    if found["more"]:
        return answer(0.0, True, len(got), f"more than {len(got)} rows, wanted {len(want)}")
    if not ground_truth.get("ordered", False):
        got, want = sorted(got, key=repr), sorted(want, key=repr)
    if got == want:
        return answer(1.0, True, len(got), "")
    if len(got) != len(want):
        return answer(0.0, True, len(got), f"{len(got)} rows, wanted {len(want)}")
    first = next(i for i, (g, w) in enumerate(zip(got, want)) if g != w)
    return answer(0.0, True, len(got), f"{got[first]} stands where {want[first]} should")


def answer(score, ran, rows, reason):
    return {"score": score, "ran": ran, "rows": rows, "reason": reason}
