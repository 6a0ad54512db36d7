"""A stub of an engine that serves a model (vLLM, SGLang) behind OpenAI's protocol."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

#: What a request is answered with: the text of a reply, or a status and a body.
Answer = str | tuple[int, dict[str, Any]]


class Engine:
    """Answers POST /v1/chat/completions with what answer(request) returns, and keeps the requests."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.requests.append(request)
                engine.headers.append(dict(self.headers))
                made = engine.answer(request)
                status, body = made if isinstance(made, tuple) else (200, completion(request["model"], made))
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="stub engine", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def completion(model: str, text: str) -> dict[str, Any]:
    """An answer as vLLM writes it."""
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }  # fmt: skip


def brightness(request: dict[str, Any]) -> int:
    """The grey, 0 to 255, of the picture in a request."""
    for message in request["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
                return round(float(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).mean()))
    raise ValueError("no picture in the request")
