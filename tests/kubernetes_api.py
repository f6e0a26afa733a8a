"""A double of a Kubernetes API server: real HTTP on loopback, exact bytes, published schemas, and faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import parse_qs, urlsplit

from tenure.launchers.kubernetes_objects import Object
from tests.kubernetes_discovery import discovered
from tests.kubernetes_objects import NEWEST, NotAnObject, check

TOKEN = "a-token-of-this-test"
NAMESPACE = "tenure"
MAX_BODY = 1_500_000
_CREATED_AT = "2026-01-01T00:00:00Z"
_PATHS: Mapping[str, str] = MappingProxyType(
    {"apis/batch/v1/jobs": "Job", "api/v1/pods": "Pod", "apis/coordination.k8s.io/v1/leases": "Lease"}
)
_QUERIES = frozenset({"labelSelector", "propagationPolicy"})


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: bytes

    @property
    def json(self) -> Object:
        return dict[str, Any](json.loads(self.body or b"{}"))


@dataclass
class Fault:
    """What happens to the next requests of that method at objects of that kind.

    `answer`: an error in place of the deed. `lost`: the deed, and a closed connection. `cut`: the deed, and half an
    answer. `garbage`: the deed, and an answer that is no JSON. `hang`: no deed and no answer.
    """

    method: str
    kind: str
    how: Literal["answer", "cut", "garbage", "hang", "lost"] = "answer"
    status: int = 500
    reason: str = "InternalError"
    count: int = 1


@dataclass
class ApiServer:
    """The objects of one cluster, and who asked what."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict[tuple[str, str], Object])
    """By kind and name; there is one namespace."""
    requests: list[Request] = field(default_factory=list["Request"])
    faults: list[Fault] = field(default_factory=list["Fault"])
    allows_leases: bool = True
    wants_token: bool = True
    lock: threading.RLock = field(default_factory=threading.RLock)
    released: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    _version: int = 0

    @contextmanager
    def serving(self) -> Generator[ApiServer]:
        server = _Server(self)
        self.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def kubeconfig(self, folder: Path, user: Object | None = None) -> str:
        """The path of a file that leads a client here, as that user; else one who has the token."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "test", "user": user or {"token": TOKEN}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def put(self, item: Object) -> Object:
        """Store an object as a controller would."""
        with self.lock:
            self._version += 1
            meta = item.setdefault("metadata", {})
            meta.setdefault("uid", f"00000000-0000-4000-8000-{self._version:012d}")
            meta.setdefault("namespace", NAMESPACE)
            meta.setdefault("creationTimestamp", _CREATED_AT)
            meta["resourceVersion"] = str(self._version)
            self.objects[item["kind"], meta["name"]] = item
            return item

    def of(self, kind: str) -> list[Object]:
        with self.lock:
            return [item for (found, _), item in sorted(self.objects.items()) if found == kind]

    def get(self, kind: str, name: str) -> Object | None:
        with self.lock:
            return self.objects.get((kind, name))

    def remove(self, kind: str, name: str) -> None:
        with self.lock:
            self.objects.pop((kind, name), None)

    def asked(self, method: str, kind: str) -> list[Request]:
        plural = f"/{kind.lower()}s"
        with self.lock:
            return [one for one in self.requests if one.method == method and plural in one.path]

    def fault_for(self, method: str, kind: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if (fault.method, fault.kind) == (method, kind) and fault.count > 0:
                    fault.count -= 1
                    return fault
        return None

    def answer(self, request: Request, kind: str, name: str) -> tuple[int, Object]:
        """Do what was asked."""
        if set(request.query) - _QUERIES:
            return failure(400, "BadRequest", f"unknown query: {request.query}")
        if kind == "Lease" and not self.allows_leases:
            return failure(403, "Forbidden", "leases.coordination.k8s.io is forbidden")
        with self.lock:
            if request.method == "POST":
                return self._create(kind, request)
            if not name:
                return self._list(kind, request.query.get("labelSelector", ""))
            found = self.objects.get((kind, name))
            if found is None:
                return failure(404, "NotFound", f'{kind} "{name}" not found')
            deeds = {"PATCH": self._patch, "DELETE": self._delete}
            return deeds[request.method](found, request) if request.method in deeds else (200, found)

    def _create(self, kind: str, request: Request) -> tuple[int, Object]:
        item = request.json
        if (item.get("kind"), item["metadata"].get("namespace")) != (kind, NAMESPACE):
            return failure(400, "BadRequest", "the object provided is unrecognized")
        if (kind, item["metadata"]["name"]) in self.objects:
            return failure(409, "AlreadyExists", f'{kind} "{item["metadata"]["name"]}" already exists')
        try:
            check(item)
        except NotAnObject as error:
            return failure(422, "Invalid", f"{kind} is invalid: {error}")
        return 201, self.put({**item, "status": {}} if kind == "Job" else item)

    def _list(self, kind: str, selector: str) -> tuple[int, Object]:
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        items = [item for item in self.of(kind) if wanted.items() <= item["metadata"].get("labels", {}).items()]
        return 200, {"apiVersion": "v1", "kind": f"{kind}List", "metadata": {}, "items": items}

    def _patch(self, item: Object, request: Request) -> tuple[int, Object]:
        if request.content_type not in {"application/merge-patch+json", "application/strategic-merge-patch+json"}:
            return failure(415, "UnsupportedMediaType", request.content_type)
        changed = merged(item, request.json)
        try:
            check({name: value for name, value in changed.items() if name != "status"}, NEWEST)
        except NotAnObject as error:
            return failure(400, "BadRequest", str(error))
        return 200, self.put(changed)

    def _delete(self, item: Object, request: Request) -> tuple[int, Object]:
        policy = request.query.get("propagationPolicy") or request.json.get("propagationPolicy")
        meta = item["metadata"]
        if item["kind"] == "Job" and policy is None:
            return failure(400, "BadRequest", "this double wants to be told what becomes of the pods")
        if policy == "Foreground":
            meta.setdefault("deletionTimestamp", _CREATED_AT)
            meta["finalizers"] = ["foregroundDeletion"]
            return 200, self.put(item)
        self.objects.pop((item["kind"], meta["name"]))
        return 200, {"apiVersion": "v1", "kind": "Status", "status": "Success"}


def merged(item: Object, change: Object) -> Object:
    """The object with the change merged into it."""
    result = dict(item)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], cast("Object", value))
        else:
            result[name] = value
    return result


def failure(status: int, reason: str, message: str) -> tuple[int, Object]:
    """A Status object, as for every refusal."""
    said: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return status, {**said, "message": message, "reason": reason, "code": status}


def _place(path: str) -> tuple[str, str, str]:
    """The namespace, kind and name that a path names; an unknown kind is empty."""
    head, _, rest = path.strip("/").partition("/namespaces/")
    words = rest.split("/")
    if len(words) not in {2, 3}:
        return "", "", ""
    kind = _PATHS.get(f"{head}/{words[1]}", "")
    return words[0], kind, words[2] if len(words) == 3 else ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: ApiServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""

    def handle_request(self) -> None:
        api, parts = self._api, urlsplit(self.path)
        body = self.rfile.read(min(MAX_BODY, int(self.headers.get("Content-Length") or 0)))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        content_type = (self.headers.get("Content-Type") or "").split(";")[0]
        if (said := discovered(parts.path)) is not None:
            self._send(200, said, "")
            return
        request = Request(self.command, parts.path, query, content_type, body)
        namespace, kind, name = _place(parts.path)
        with api.lock:
            api.requests.append(request)
        fault = api.fault_for(self.command, kind)
        if fault is not None and fault.how == "hang":
            api.released.wait()
            self.close_connection = True
            return
        if fault is not None and fault.how == "answer":
            self._send(*failure(fault.status, fault.reason, "as this test wants it"), "")
            return
        status, found = self._refusal(namespace, kind) or api.answer(request, kind, name)
        self._send(status, found, fault.how if fault else "")

    do_GET = do_POST = do_PATCH = do_DELETE = handle_request  # noqa: N815 - the base class calls them so

    @property
    def _api(self) -> ApiServer:
        return cast("_Server", self.server).api

    def _refusal(self, namespace: str, kind: str) -> tuple[int, Object] | None:
        if self._api.wants_token and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return failure(401, "Unauthorized", "Unauthorized")
        if not kind:
            return failure(404, "NotFound", "the server could not find the requested resource")
        if namespace != NAMESPACE:
            return failure(404, "NotFound", f'namespaces "{namespace}" not found')
        return None

    def _send(self, status: int, found: Object, how: str) -> None:
        if how == "lost":
            self.close_connection = True
            return
        with self._api.lock:
            raw = b"<html>a proxy says hello</html>" if how == "garbage" else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw[: len(raw) // 2] if how == "cut" else raw)
        self.close_connection = how == "cut" or self.close_connection
