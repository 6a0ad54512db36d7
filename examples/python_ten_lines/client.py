"""Scores JPEGs: client.py ws://127.0.0.1:8080 'A sign that says "Open"' a.jpg b.jpg"""

import json, struct, sys
from websockets.sync.client import connect

url, prompt, *files = sys.argv[1:]
with connect(url + "/v1/stream", subprotocols=["rewardloop.v1"], max_size=None) as ws:
    ws.send(json.dumps({"type": "hello", "run": "ten lines"}))
    for name in files:
        data = open(name, "rb").read()
        sample = {"id": name, "prompt": prompt, "media": [{"tensor": "jpeg", "kind": "image", "encoding": "jpeg"}]}
        tensor = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
        head = json.dumps({"__metadata__": {"sample": json.dumps(sample)}, "jpeg": tensor}).encode()
        ws.send(struct.pack("<Q", len(head)) + head + data)
    for _ in files:
        while (m := json.loads(ws.recv(timeout=600)))["type"] != "result":
            pass
        print(m["id"], m["outcome"], m["reward_score"])
