"""Writes verl_sandbox.jsonl: what verl's sandbox_fusion reward sends and scores.

Run with a Python that has verl (0.9.0) and requests:

    python make_verl_sandbox.py > verl_sandbox.jsonl

No server is asked: requests.post is replaced, and the cases run one after the other so that the
answers fit them.
"""

import concurrent.futures
import json
import logging
import sys

from verl.utils.reward_score.sandbox_fusion import compute_score, utils

logging.disable(logging.CRITICAL)
EXECUTOR = concurrent.futures.ThreadPoolExecutor
utils.concurrent.futures.ThreadPoolExecutor = lambda max_workers: EXECUTOR(max_workers=1)


def ran(stdout, code=0, status="Finished", stderr=""):
    return {"status": status, "execution_time": 0.25, "return_code": code, "stdout": stdout, "stderr": stderr}


def success(stdout):
    return {"status": "Success", "message": "", "compile_result": None, "run_result": ran(stdout)}


def failed(run=None, compile=None):
    return {"status": "Failed", "message": "", "compile_result": compile, "run_result": run}


SANDBOX_ERROR = {"status": "SandboxError", "message": "no pods", "compile_result": None, "run_result": None}
CODE = "Sure:\n```python\nprint(int(input()) + 1)\n```\ndone"


def cases(n, **more):
    return {"inputs": [f"{i}\n" for i in range(n)], "outputs": [f"{i + 1}\n" for i in range(n)], **more}


ROWS = [
    ("all pass", CODE, cases(3), [success("1\n"), success("2"), success("3\n\n")], True),
    ("one wrong", CODE, cases(3), [success("1\n"), success("7\n"), success("3\n")], True),
    ("spaces count", CODE, cases(2), [success("1 \n"), success(" 2")], True),
    ("runtime error", CODE, cases(2), [success("1"), failed(ran("", 1, stderr="boom"))], False),
    ("error status", CODE, cases(1), [failed(ran("", None, "Error"))], False),
    ("timeout", CODE, cases(2), [failed(ran("", None, "TimeLimitExceeded")), success("2")], False),
    ("compile error", CODE, cases(3), [success("1"), failed(None, ran("", 1, stderr="syntax")), success("3")], False),
    ("compile timeout", CODE, cases(2), [failed(ran(""), ran("", None, "TimeLimitExceeded")), success("2")], False),
    ("compile status error", CODE, cases(1), [failed(None, ran("", None, "Error"))], False),
    ("compiled, then failed", CODE, cases(1), [failed(ran("", 3), ran("", 0))], False),
    ("first ten", CODE, cases(12), [success(f"{i + 1}") for i in range(9)] + [success("x")] * 3, True),
    ("all of twelve", CODE, cases(12), [success(f"{i + 1}") for i in range(9)] + [success("x")] * 3, False),
    ("sandbox error", CODE, cases(2), [success("1"), SANDBOX_ERROR], False),
    ("failed for no reason", CODE, cases(1), [failed()], False),
    ("unfinished success", CODE, cases(1), [{"status": "Success", "run_result": ran("1", status="Error")}], False),
    ("no code", "I do not know", cases(2), [], True),
    ("last block", "```python\nfirst\n```\n```python\nsecond\n```", cases(1), [success("1")], True),
    ("block without a language", "x ```\nprint(1)\n``` y", cases(1), [success("1")], True),
    ("block of another language", "```cpp\nint main(){}\n```", cases(1), [success("1")], True),
    ("block with a version", "```c++\nint main(){}\n```", cases(1), [success("1")], True),
    ("unclosed block", "```python\nprint(1)", cases(1), [success("1")], True),
    ("one line", "```print(1)```", cases(1), [success("1")], True),
    ("not stdin but None", CODE, {"inputs": [None], "outputs": [None]}, [success("whatever")], True),
    ("numbers", CODE, {"inputs": [1, 2.5, True], "outputs": [2, 3.5, False]}, [success("2"), success("3.5"), success("False")], True),
    ("empty outputs", CODE, {"inputs": ["1"], "outputs": [""]}, [success("\n")], True),
    ("assertions", CODE, {"assert_case": ["assert f(1) == 2", "assert f(2) == 3"]}, [success(""), failed(ran("", 1))], True),
    ("assertions with inputs", CODE, {"assert_case": ["assert 1"], "inputs": ["5"], "outputs": ["6"]}, [success("6")], True),
    ("text", CODE, json.dumps(cases(1)), [success("1")], True),
    ("function", "```python\ndef f(a):\n    return a\n```", {"fn_name": "f", "inputs": ["1"], "outputs": ["1"]}, [success("1")], True),
]


class Answer:
    status_code = 200

    def __init__(self, value):
        self.value = value

    def raise_for_status(self):
        pass

    def json(self):
        return self.value


def main():
    for name, completion, tests, answers, continuous in ROWS:
        sent, left = [], list(answers)

        def post(url, headers, data, timeout, sent=sent, left=left):
            sent.append({"body": json.loads(data), "headers": headers, "timeout": timeout})
            return Answer(left.pop(0))

        utils.requests.post = post
        given = json.loads(json.dumps(tests))
        score, details = compute_score("http://sandbox/run_code", None, 1024, completion, given, continuous=continuous)
        row = {
            "name": name, "completion": completion, "test_cases": tests, "continuous": continuous, "answers": answers,
            "requests": [s["body"] for s in sent], "score": score, "statuses": [d.get("status") for d in details],
        }
        if "function" in name:  # verl's own program around the code: ours is another
            for body in row["requests"]:
                body["code"] = None
        if sent:
            assert sent[0]["timeout"] == 30 and sent[0]["headers"]["Accept"] == "application/json"
        print(json.dumps(row), file=sys.stdout)


main()
