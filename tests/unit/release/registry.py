"""A small server on loopback: a registry with tokens, and OSV."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services.reference.release.images import INDEXES, PLATFORMS


def index(*platforms: str) -> dict[str, Any]:
    """Return the index of an image that is there for these platforms."""
    manifests = []
    for number, platform in enumerate(sorted(platforms)):
        system, _, architecture = platform.partition("/")
        digest = f"sha256:{number:064x}"
        described = {"os": system, "architecture": architecture}
        manifests.append({"digest": digest, "platform": described})
    return {"schemaVersion": 2, "manifests": manifests}


class Site:
    """What the server answers, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.manifests: dict[str, bytes] = {}
        """`<repository>:<tag>` to its manifest."""

        self.digest: str | None = None
        """What it says instead of the true digest."""

        self.media_type = INDEXES[0]
        self.token = b'{"token": "t"}'

        self.vulnerable: dict[str, list[str]] = {}
        self.osv_answer: Any = None

    def add(self, repository: str, tag: str) -> str:
        """Add a manifest; return its digest."""
        body = json.dumps({**index(*PLATFORMS), "for": f"{repository}:{tag}"}).encode()
        self.manifests[f"{repository}:{tag}"] = body
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def osv(self, question: Any) -> Any:
        """Answer as OSV does."""
        if self.osv_answer is not None:
            return self.osv_answer
        names = [query["package"]["name"] for query in question["queries"]]
        found = [[{"id": each} for each in self.vulnerable.get(name, ())] for name in names]
        return {"results": [{"vulns": each} if each else {} for each in found]}


@contextmanager
def site() -> Iterator[Site]:
    """Serve until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/token?"):
                assert "scope=repository%3A" in self.path
                return self._answer(200, found.token, {})
            if self.headers.get("Authorization") != "Bearer t":
                realm = f'Bearer realm="http://{found.address}/token",service="r"'
                return self._answer(401, b"", {"WWW-Authenticate": realm})
            _, _, path = self.path.partition("/v2/")
            body = found.manifests.get(path.replace("/manifests/", ":"))
            if body is None:
                return self._answer(404, b"{}", {})
            digest = found.digest or f"sha256:{hashlib.sha256(body).hexdigest()}"
            headers = {"Docker-Content-Digest": digest, "Content-Type": found.media_type}
            return self._answer(200, body, headers)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, json.dumps(found.osv(json.loads(body))).encode(), {})

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
