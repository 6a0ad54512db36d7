"""Pickle clients as trainers write them, for python_test.go.

usage: clients.py URL GOOD_PICTURE...

Prints one JSON line {"name", "status", "answer"} for each request; the answer is
loaded by Python's own pickle. NumPy is used where it is installed.
"""

import http.client
import json
import pickle
import sys
import urllib.error
import urllib.parse
import urllib.request

try:
    import numpy as np
except ImportError:
    np = None

url, files = sys.argv[1], sys.argv[2:]
images = [open(f, "rb").read() for f in files]
prompts = ["prompt %d é" % i for i in range(len(images))]


def report(name, status, body):
    answer = pickle.loads(body)
    print(json.dumps({"name": name, "status": status, "answer": answer}), flush=True)


def post(name, path, request, protocol=pickle.DEFAULT_PROTOCOL):
    body = request if isinstance(request, bytes) else pickle.dumps(request, protocol=protocol)
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data=body, method="POST"), timeout=30) as r:
            report(name, r.status, r.read())
    except urllib.error.HTTPError as e:
        report(name, e.code, e.read())


for protocol in range(1, pickle.HIGHEST_PROTOCOL + 1):
    post("verl_omni p%d" % protocol, "/", {"images": images[:1], "prompts": prompts[:1], "metadata": {}}, protocol)
    post("deqa p%d" % protocol, "", {"images": images}, protocol)
    if np is not None:
        post("unified numpy p%d" % protocol, "/", {"images": images, "prompts": np.array(prompts)}, protocol)
        post("tuple numpy p%d" % protocol, "/", {"images": images, "prompts": tuple(np.array(prompts))}, protocol)
        post("object numpy p%d" % protocol, "/", {"images": np.array(images, dtype=object), "prompts": np.array(prompts, dtype=object)}, protocol)
post("protocol 0", "/", {"images": images[:1]}, 0)
post("mismatch", "/", {"images": images, "prompts": prompts[:1]})
post("garbage", "/", {"images": [b"nothing"], "prompts": ["x"]})
post("not a pickle", "/", b"hello")
post("unknown reward", "/scorers/nobody", {"images": images})

# One connection, as an aiohttp session keeps it: a refusal does not end it.
parts = urllib.parse.urlsplit(url)
conn = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
for name, body in [("kept bad", b"\x80\x04junk"), ("kept good", pickle.dumps({"images": images}))] * 2:
    conn.request("POST", "/", body)
    sock = conn.sock
    response = conn.getresponse()
    report(name, response.status, response.read())
    assert conn.sock is sock and sock is not None, "the connection was closed after " + name
conn.close()
print(json.dumps({"name": "numpy", "status": 0, "answer": np is not None and np.__version__}))
