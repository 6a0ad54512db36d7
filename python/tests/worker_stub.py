"""Stands in for `rewardloop worker` where a test is about its launcher: the same options, ready line, end and /readyz.

What it does wrong is asked for in STUB: "hang" never says it is ready, "garbage" says something else, "code:N"
complains and exits with N, "unresponsive" ignores SIGTERM, "orphan" the end of its stdin, "chatty" writes a lot to both its
outputs, "child" starts a process that does not end by itself.
It writes what it was started with to the file that STUB_REPORT names, line by line as JSON; it drains for STUB_DRAIN
seconds, and says how it ended in the file that STUB_ENDED names.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time


class Readyz(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def end(why: str) -> None:
    if path := os.environ.get("STUB_ENDED"):
        with open(path, "a", encoding="utf-8") as out:
            out.write(f"{why}\n")
    os._exit(0)


def end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    end("stdin closed")


def drain(*_: object) -> None:
    time.sleep(float(os.environ.get("STUB_DRAIN", "0")))
    print("drained", file=sys.stderr, flush=True)
    end("drained")


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("command", choices=["worker"])
    flags.add_argument("overrides", nargs="*")
    flags.add_argument("-c", dest="config")
    for name in ("--join", "--name", "--listen", "--log-format"):
        flags.add_argument(name, required=True)
    flags.add_argument("--until-stdin-closes", action="store_true")
    args = flags.parse_intermixed_args()
    mode = os.environ.get("STUB", "")
    if report := os.environ.get("STUB_REPORT"):
        text = None
        if args.config:
            with open(args.config, encoding="utf-8") as config:
                text = config.read()
        said = {
            "name": args.name, "pid": os.getpid(), "join": args.join, "overrides": args.overrides, "config": text,
            "config_path": args.config, "files": sorted(os.listdir(".")), "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }  # fmt: skip
        with open(report, "a", encoding="utf-8") as out:
            out.write(json.dumps(said) + "\n")
    if mode == "chatty":
        for i in range(1000):
            print(f"line {i}", file=sys.stderr)
        sys.stderr.write("x" * 100_000 + "\n")
    print(f"stub {args.name} of {os.getpid()}", file=sys.stderr, flush=True)
    if mode.startswith("code:"):
        print("rewardloop worker: config.yaml:1:1: nonsense is no section", file=sys.stderr)
        sys.exit(int(mode[5:]))
    if mode == "child":
        subprocess.Popen(["sleep", "600"])
    # The kernel may hand a signal to any thread, or just before the main one sleeps: a pause() would miss both.
    woken, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "unresponsive" else drain)
    if mode == "hang":
        time.sleep(600)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Readyz)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listen = f"127.0.0.1:{server.server_address[1]}"
    if mode == "garbage":
        print("hello", flush=True)
    else:
        print(json.dumps({"event": "ready", "worker": args.name, "pid": os.getpid(), "listen": listen}), flush=True)
    if mode == "chatty":
        print("y" * 1_000_000, flush=True)
        print("still here", file=sys.stderr, flush=True)
    if args.until_stdin_closes and mode != "orphan":
        threading.Thread(target=end_with_stdin, daemon=True).start()
    while True:
        os.read(woken, 1)


if __name__ == "__main__":
    main()
