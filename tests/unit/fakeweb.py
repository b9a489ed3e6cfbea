"""A web server of this machine for tests: it serves a folder, and can be made to behave badly."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Web:
    """How it behaves, and what was asked of it."""

    folder: Path
    address: str = ""
    ranges: bool = False
    head: bool = True
    """Whether HEAD is known."""
    told: tuple[str, ...] = ("Content-Length", "Last-Modified", "ETag")
    """Headers that it sends."""
    fail: int = 0
    """The status of the next answers, `times` of them; 1: an answer that is cut off half-way."""
    times: int = 0
    silent: float = 0.0
    """Seconds before the body."""
    asked: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(folder: Path) -> Iterator[Web]:
    """Serve `folder` while the block runs."""
    web = Web(folder)
    handler = type("Handler", (_Handler,), {"web": web})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        web.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield web
        finally:
            web.stop.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    web: Web

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        if self.web.head:
            self._answer(body=False)
        else:
            self._say(405)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        self.web.asked[self.command] += 1
        path = self.web.folder / unquote(urlsplit(self.path).path).lstrip("/")
        if body and self.web.times and self.web.fail > 1:
            self.web.times -= 1
            self._say(self.web.fail)
        elif not path.is_file():
            self._say(404)
        else:
            self._send(path, body)

    def _send(self, path: Path, body: bool) -> None:
        content = path.read_bytes()
        begin, end = 0, len(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and self.web.ranges:
            begin, end = int(asked[1]), min(end, int(asked[2]) + 1) if asked[2] else end
        headers = {
            "Content-Length": str(end - begin),
            "Last-Modified": formatdate(path.stat().st_mtime, usegmt=True),
            "ETag": f'"{path.stat().st_mtime_ns}"',
        }
        told = {name: value for name, value in headers.items() if name in self.web.told}
        if asked and self.web.ranges:
            told["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        self.send_response(206 if "Content-Range" in told else 200)
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.web.stop.wait(self.web.silent)
            with suppress(ConnectionError):  # whoever asked had enough
                self.wfile.write(content[begin:end][: self._cut(end - begin)])

    def _cut(self, size: int) -> int:
        """Return how much is sent of a body."""
        if self.web.fail != 1 or not self.web.times:
            return size
        self.web.times -= 1
        return size // 2

    def _say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
