"""Runs the SQL of a response beside that of the ground truth, {"db": …, "sql": …}.

The one argument is the folder with the databases, <db>.sqlite each.
"""

import json
import pathlib
import re
import sqlite3
import sys
import time

READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
MAX_ROWS, MAX_SECONDS = 10_000, 5


def rows(path, sql):
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    db.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY)
    until = time.monotonic() + MAX_SECONDS
    db.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    return db.execute(sql).fetchmany(MAX_ROWS)


sample = json.load(sys.stdin)
truth = sample["ground_truth"]
path = pathlib.Path(sys.argv[1], re.fullmatch(r"\w+", truth["db"])[0] + ".sqlite").resolve(strict=True)
fenced = re.findall(r"```sql\n(.*?)```", sample.get("response", ""), re.DOTALL)
want = rows(path, truth["sql"])  # a ground truth that does not run is nobody's answer: the program fails
try:
    got = rows(path, fenced[-1] if fenced else sample.get("response", ""))
    print(json.dumps({"ran": True, "rows": len(got), "match": sorted(got, key=repr) == sorted(want, key=repr)}))
except (sqlite3.Error, sqlite3.Warning) as error:
    print(json.dumps({"ran": False, "match": False, "error": str(error)[:500]}))
