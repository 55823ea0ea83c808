"""A local stand-in of the Hugging Face Hub: repositories that can be created, pushed to and loaded from."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

LARGE = (".safetensors",)  # files that are uploaded by LFS


class Hub(ThreadingHTTPServer):
    """Keeps the files of each repository and the blobs of LFS in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.commits: list[dict] = []
        self.unknown: list[str] = []
        """Requests that this stand-in does not know."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers as the Hub does, as far as huggingface_hub asks."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, content: object, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, kind: str) -> None:
        self.answer({"error": "not found"}, 404, X_Error_Code=kind)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_POST(self) -> None:
        path, body, hub = urlsplit(self.path).path, self.body(), self.server
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            hub.repositories.setdefault(name, {})
            self.answer({"url": f"{hub.address}/{name}", "id": name})
        elif path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": check_card(json.loads(body)["content"])})
        elif found := re.fullmatch(r"/api/models/(.+?)/preupload/.+", path):
            self.answer({"files": [self.mode(file) for file in json.loads(body)["files"]]})
        elif path.endswith(".git/info/lfs/objects/batch"):
            asked = json.loads(body)["objects"]
            upload = {o["oid"]: {"upload": {"href": f"{hub.address}/lfs/{o['oid']}"}} for o in asked}
            self.answer({"transfer": "basic", "objects": [{**o, "actions": upload[o["oid"]]} for o in asked]})
        elif found := re.fullmatch(r"/api/models/(.+?)/commit/.+", path):
            self.commit(found[1], [json.loads(line) for line in body.splitlines()])
        else:
            hub.unknown.append(path)
            self.missing("EntryNotFound")

    def mode(self, file: dict) -> dict:
        large = file["path"].endswith(LARGE)
        return {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}

    def commit(self, name: str, lines: list[dict]) -> None:
        files = self.server.repositories[name]
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.commits.append(value)
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        oid = f"{len(self.server.commits):040}"
        self.answer(
            {"success": True, "commitOid": oid, "commitUrl": f"{self.server.address}/{name}/commit/{oid}"}
        )

    def do_PUT(self) -> None:
        content, oid = self.body(), self.path.rpartition("/")[2]
        assert hashlib.sha256(content).hexdigest() == oid
        self.server.blobs[oid] = content
        self.answer({})

    def do_GET(self) -> None:
        path, hub = unquote(urlsplit(self.path).path), self.server
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            if found[1] not in hub.repositories:
                self.missing("RepoNotFound")
            elif found[2] not in hub.repositories[found[1]]:
                self.missing("EntryNotFound")
            else:
                content = hub.repositories[found[1]][found[2]]
                tag = hashlib.sha256(content).hexdigest()
                self.answer(content, ETag=f'"{tag}"', X_Repo_Commit=f"{len(hub.commits):040}")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/tree/.+|/revision/.+)?", path):
            files = hub.repositories.get(found[1], {})
            listed = [{"type": "file", "path": file, "size": len(files[file]), "oid": "0"} for file in files]
            siblings = [{"rfilename": file} for file in files]
            about = {"id": found[1], "sha": f"{len(hub.commits):040}", "siblings": siblings, "tags": []}
            self.answer(listed if (found[2] or "").startswith("/tree") else about)
        else:
            hub.unknown.append(path)
            self.missing("EntryNotFound")

    do_HEAD = do_GET  # noqa: N815  the name that the base class calls


def check_card(text: str) -> list[dict[str, str]]:
    """Return warnings about the metadata of a model card."""
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    data = yaml.safe_load(found[1]) if found else {}
    return [{"message": f"{key} is missing"} for key in ("library_name", "tags") if not data.get(key)]


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub until the end of the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
