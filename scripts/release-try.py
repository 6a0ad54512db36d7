"""release-try.py CONFIG PICTURE [COMMAND...]: starts the program rewardloop that is installed, or COMMAND in its place, scores a picture
over HTTP and, where the package rewardloop is installed, over the websocket, with a client of the standard library for the one and the
package's for the other."""

import importlib.util
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

config, picture, *command = sys.argv[1:]
prompt = 'A poster that says "Opal Bookshop"'
beside = Path(sys.executable).with_name("rewardloop")
program = str(beside) if beside.exists() else shutil.which("rewardloop")
assert command or program, "no program rewardloop"
server = subprocess.Popen(
    [*(command or [program]), "serve", "-c", config, "--listen", "127.0.0.1:18080", "--log-format", "json"], stderr=subprocess.PIPE, text=True
)
try:
    for line in server.stderr:
        if '"msg":"serving"' in line:
            break
    else:
        raise SystemExit(f"serve ended with {server.wait()}")
    boundary = "a-boundary"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="samples"\r\n\r\n'.encode()
        + json.dumps({"prompt": prompt, "images": [{"file": "poster"}]}).encode(),
        f'--{boundary}\r\nContent-Disposition: form-data; name="poster"; filename="poster.jpg"\r\n\r\n'.encode() + Path(picture).read_bytes(),
        f"--{boundary}--\r\n".encode(),
    ]
    request = urllib.request.Request(
        "http://127.0.0.1:18080/v1/score",
        b"\r\n".join(parts),
        {"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        result = json.load(answer)["results"][0]
    assert result["outcome"] == "scored", result
    print("over HTTP:", result["reward_score"])
    if importlib.util.find_spec("rewardloop") is not None:
        import rewardloop

        with rewardloop.Client("ws://127.0.0.1:18080", run="release") as client:
            [scored] = client.score([rewardloop.Sample(prompt=prompt, media=rewardloop.image(picture))])
        assert scored.reward_score == result["reward_score"], scored
        print("over the websocket:", scored.reward_score)
finally:
    server.terminate()
    server.communicate(timeout=60)
