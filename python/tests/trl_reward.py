"""The reward of test_trl_real: how many characters of a completion are the one that is asked for. One that holds the
character of ground_truth.fails has none, for a reason of its own."""


def compute_score(solution_str, ground_truth):
    if ground_truth["fails"] in solution_str:
        raise ValueError(f"{ground_truth['fails']!r} is not rated")
    return {"score": solution_str.count(ground_truth["wanted"]) / max(len(solution_str), 1), "length": len(solution_str)}
