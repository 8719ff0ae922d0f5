"""A model's provider on this machine: four APIs, streamed or not, in every form that a test needs.

As a program it prints its address and serves until it is ended:

    python -m tests.support.fake_model [--form FORM] [--key KEY]

Forms: ok, 401, 429, 429-once, 500, 503-once, 529, garbage, redirect, stall, slow, compressed, echo, cut and
nonsense.
A model whose name begins with `form:` chooses the form itself, for one request.
"""

import argparse
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.fake_answers import APIS, CACHED, INPUT, OUTPUT, Call, generated, generated_events

__all__ = ["CACHED", "HTML", "INPUT", "MODEL", "OUTPUT", "Answer", "FakeModel", "Seen", "fake_model"]
MODEL = "fake-model-1"
HTML = b"<html><body>Log in to the network of this hotel</body></html>"
ERROR_STATUS = {"401": 401, "429": 429, "500": 500, "529": 529, "429-once": 429, "503-once": 503}


@dataclass(frozen=True)
class Seen:
    """One request as the provider got it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the agent sent
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What the model says, and the tool that it wants to be used."""

    text: str
    call: Call | None = None


@dataclass
class FakeModel:
    """What the provider does and what it saw."""

    form: str = "ok"
    key: str | None = None
    retry_after: str | None = None
    text: str = "All done."
    # What it answers to a path and a request; without it, always the text.
    answer: Callable[[str, dict[str, Any]], Answer] | None = None
    slow_seconds: float = 0.2
    # The model that answers from the second request on, whatever is asked for.
    model_after_first: str | None = None
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    served: set[str] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)

    def form_of(self, model: str) -> str:
        form = model.removeprefix("form:") if model.startswith("form:") else self.form
        if form.endswith("-once"):
            if form in self.served:
                return "ok"
            self.served.add(form)
        return form


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeModel

    def do_GET(self) -> None:
        self._take(b"")
        self._say(200, {"object": "list", "data": [{"id": MODEL}]})

    def do_POST(self) -> None:
        with self.fake.counting:
            self.fake.at_once += 1
            self.fake.most_at_once = max(self.fake.most_at_once, self.fake.at_once)
        try:
            self._post()
        finally:
            with self.fake.counting:
                self.fake.at_once -= 1

    def _post(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._take(body)
        path = self.path.partition("?")[0]
        asked = json.loads(body)
        model = str(asked.get("model") or path.rpartition("/")[2].partition(":")[0])
        form = self.fake.form_of(model)
        if self.fake.key is not None and self.fake.key not in " ".join(self.headers.values()):
            form = "401"
        if form in ERROR_STATUS:
            self._fail(ERROR_STATUS[form])
        elif form in _STRANGE:
            _STRANGE[form](self)
        else:
            self._answer(path, asked, model, form)

    def _take(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.fake.seen.append(Seen(self.command, self.path, headers, body))

    def _answer(self, path: str, asked: dict[str, Any], model: str, form: str) -> None:
        if path.endswith(("count_tokens", ":countTokens")):
            self._say(200, {"input_tokens": INPUT})
            return
        if self.fake.model_after_first is not None and len(self.fake.seen) > 1:
            model = self.fake.model_after_first
        whole, events = APIS.get(path, (generated, generated_events))
        answer = Answer(self.fake.text) if self.fake.answer is None else self.fake.answer(path, asked)
        is_list = path.endswith(":streamGenerateContent") and "alt=sse" not in self.path
        if is_list:
            self._say(200, list(events(model, answer.text, answer.call)))
        elif asked.get("stream") or path.endswith(":streamGenerateContent"):
            said = list(events(model, answer.text, answer.call))
            self._stream(said, form, done=path == "/v1/chat/completions")
        else:
            if form == "slow":
                time.sleep(self.fake.slow_seconds)
            self._say(200, whole(model, answer.text, answer.call))

    def _say(self, status: int, document: object, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        kind = "text/html" if isinstance(document, bytes) else "application/json"
        fields = {"Content-Type": kind, "Content-Length": str(len(body)), "Set-Cookie": "session=1"}
        for name, value in {**fields, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, status: int) -> None:
        headers = {"Retry-After": self.fake.retry_after} if self.fake.retry_after is not None else {}
        error = {
            "type": "error",
            "error": {"type": "provider_error", "message": f"the provider says {status}"},
        }
        self._say(status, error, **headers)

    def _stream(self, events: list[dict[str, Any]], form: str, *, done: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = []
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n".encode())
        lines += [b"data: [DONE]\n\n"] if done else []
        for number, line in enumerate(lines):
            if form == "cut" and number == len(lines) // 2:
                self.close_connection = True
                return
            if form == "slow":
                time.sleep(self.fake.slow_seconds)
            self._chunk(line)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _garbage(self) -> None:
        self._say(200, HTML)

    def _redirect(self) -> None:
        self._say(302, {}, Location="http://127.0.0.1:9/elsewhere")

    def _stall(self) -> None:
        """Send a head and nothing more, until the test is over."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.fake.ended.wait(120)
        self.close_connection = True

    def _compressed(self) -> None:
        self._say(200, {"model": MODEL}, **{"Content-Encoding": "gzip"})

    def _echo(self) -> None:
        """Answer with what was sent, headers included, in parts that split every word."""
        text = json.dumps({"model": MODEL, "headers": dict(self.headers.items())}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Request-Id", " ".join(self.headers.values()))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for place in range(0, len(text), 3):
            self._chunk(text[place : place + 3])
        self._chunk(b"")

    def _nonsense(self) -> None:
        self.wfile.write(b"220 mail.example.com ESMTP\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_STRANGE = {
    "garbage": _Handler._garbage,  # noqa: SLF001 - a table of its own methods
    "redirect": _Handler._redirect,  # noqa: SLF001
    "stall": _Handler._stall,  # noqa: SLF001
    "compressed": _Handler._compressed,  # noqa: SLF001
    "echo": _Handler._echo,  # noqa: SLF001
    "nonsense": _Handler._nonsense,  # noqa: SLF001
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that has left."""


@contextmanager
def fake_model(fake: FakeModel | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[FakeModel]:
    """Serve a fake provider on this machine; yield what it does and sees."""
    fake = fake or FakeModel()
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake})) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        fake.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield fake
        finally:
            fake.ended.set()
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A model's provider on this machine.")
    parser.add_argument("--form", default="ok")
    parser.add_argument("--key")
    parser.add_argument("--retry-after")
    chosen = parser.parse_args()
    with fake_model(FakeModel(chosen.form, chosen.key, chosen.retry_after)) as fake:
        print(fake.url, flush=True)  # noqa: T201 - so that a shell can read it
        threading.Event().wait()


if __name__ == "__main__":
    main()
