"""The verify tool: reads a sample from stdin, runs the SQL of its response, and prints the result.

The only argument is the folder with the databases, <db>.sqlite each; ground_truth.db is the name of the database. An
error in the SQL is a result, {"ran": false, "error": ...}, because the response has caused it. Any other error ends the
program with an error, and the sample fails, because the response has not caused it.
"""

import json
import pathlib
import re
import sqlite3
import sys
import time

READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
MAX_ROWS, MAX_BYTES, MAX_SECONDS = 200, 48 << 10, 5


def run(db: sqlite3.Connection, sql: str) -> dict:
    until = time.monotonic() + MAX_SECONDS
    db.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        cursor = db.execute(sql)
        rows = cursor.fetchmany(MAX_ROWS + 1)
        columns = [c[0] for c in cursor.description or ()]
        found = {"ran": True, "columns": columns, "rows": rows[:MAX_ROWS], "more": len(rows) > MAX_ROWS}
        if len(json.dumps(found, ensure_ascii=False, allow_nan=False).encode()) > MAX_BYTES:
            return {"ran": False, "error": f"more than {MAX_BYTES} bytes of rows"}
        return found
    except (sqlite3.Error, sqlite3.Warning, TypeError, ValueError, MemoryError) as error:  # a blob is no JSON, nor is 9e999
        return {"ran": False, "error": (str(error) or type(error).__name__)[:500]}


def main() -> None:
    sample = json.load(sys.stdin)
    name = sample["ground_truth"]["db"]
    if not re.fullmatch(r"\w+", name):
        sys.exit(f"{name!r} is not the name of a database")
    path = pathlib.Path(sys.argv[1], name + ".sqlite")
    if not path.is_file():
        sys.exit(f"no database {name}: run make_db.py")
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # a file that is no database is not the response's fault
    # Nothing but reading: no ATTACH, no PRAGMA.
    db.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY)
    response = sample.get("response", "")
    fenced = re.findall(r"```sql\s*\n(.*?)```", response, re.DOTALL)
    print(json.dumps(run(db, fenced[-1] if fenced else response), ensure_ascii=False))


main()
