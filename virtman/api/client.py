"""The agent's verbs as Python calls, over its Unix socket."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from virtman.errors import AgentUnreachable, from_code
from virtman.model import naming

_TIMEOUT = 300.0
_LOOK = 0.2
_PAUSE = 0.5


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """The agent of this node.

    Errors are those of ``virtman.errors``, as the agent raised them.

    :param path: of the agent's socket
    """

    def __init__(self, path: str, timeout: float = _TIMEOUT) -> None:
        self.path = path
        self.timeout = timeout

    def within(self, seconds: float) -> Client:
        """Return the same agent, for questions whose answer must not take longer."""
        return Client(self.path, seconds)

    def create(
        self,
        vm: str,
        image: str = "",
        *,
        snapshot: str = "",
        quota: int | None = None,
        store: str = "",
    ) -> dict[str, Any]:
        """Give a VM its device, over an image or as of a snapshot; return the VM.

        :param quota: bytes that its stores may take; None for what the agent is told
        :param store: path of a block device that takes what the VM writes
        """
        body: dict[str, Any] = {}
        if image:
            body["image"] = naming.check("image", image)
        if snapshot:
            body["snapshot"] = naming.check("snapshot", snapshot)
        if quota is not None:
            body["quota"] = quota
        if store:
            body["store"] = store
        made: dict[str, Any] = self._call("PUT", _instance(vm), body)
        return made

    def show(self, vm: str) -> dict[str, Any]:
        """Return one VM."""
        found: dict[str, Any] = self._call("GET", _instance(vm))
        return found

    def limit(self, vm: str, quota: int) -> dict[str, Any]:
        """Give a VM another quota, in bytes; 0 for none."""
        changed: dict[str, Any] = self._call("PATCH", _instance(vm), {"quota": quota})
        return changed

    def destroy(self, vm: str) -> None:
        """Take a VM's device away."""
        self._call("DELETE", _instance(vm))

    def snapshot(self, vm: str, snapshot: str) -> dict[str, Any]:
        """Keep a VM's data as of now, while it runs; return the snapshot."""
        body = {"vm": naming.check("VM", vm)}
        made: dict[str, Any] = self._call("PUT", _snapshot(snapshot), body)
        return made

    def rollback(self, vm: str, snapshot: str) -> dict[str, Any]:
        """Have a VM begin anew at one of its snapshots."""
        body = {"snapshot": naming.check("snapshot", snapshot)}
        changed: dict[str, Any] = self._call("POST", f"{_instance(vm)}/rollback", body)
        return changed

    def snapshots(self, vm: str = "") -> Sequence[dict[str, Any]]:
        """Return all snapshots, or those of one VM; the oldest first."""
        query = f"?vm={naming.check('VM', vm)}" if vm else ""
        found: Sequence[dict[str, Any]] = self._call("GET", f"/v1/snapshots{query}")["snapshots"]
        return found

    def show_snapshot(self, snapshot: str) -> dict[str, Any]:
        """Return one snapshot."""
        found: dict[str, Any] = self._call("GET", _snapshot(snapshot))
        return found

    def delete_snapshot(self, snapshot: str) -> None:
        """Forget a snapshot; what only it needs goes."""
        self._call("DELETE", _snapshot(snapshot))

    def list(self) -> Sequence[dict[str, Any]]:
        """Return the VMs of this node."""
        found: Sequence[dict[str, Any]] = self._call("GET", "/v1/instances")["instances"]
        return found

    def clone(self, vm: str, host: str, name: str = "") -> dict[str, Any]:
        """Begin to copy a VM to another host, as of now, while it runs; return the move.

        :param name: of the copy; empty for the same
        """
        body = {"host": naming.check("host", host), "as": naming.check("VM", name or vm)}
        begun: dict[str, Any] = self._call("POST", f"{_instance(vm)}/clone", body)
        return begun

    def migrate(self, vm: str, host: str, *, live: bool = False) -> dict[str, Any]:
        """Begin to move a VM to another host while it runs; return the move.

        :param live: it is handed over once ``finish_move`` is called; the other host has a device
            for it from now on, which fails all I/O until then
        """
        body: dict[str, Any] = {"host": naming.check("host", host)}
        if live:
            body["live"] = True
        begun: dict[str, Any] = self._call("POST", f"{_instance(vm)}/migrate", body)
        return begun

    def move(self, vm: str) -> dict[str, Any]:
        """Return how far a VM is on its way to another host, or how that ended."""
        found: dict[str, Any] = self._call("GET", _move(vm))
        return found

    def moves(self) -> Sequence[dict[str, Any]]:
        """Return the moves from this node, ended ones too."""
        found: Sequence[dict[str, Any]] = self._call("GET", "/v1/moves")["moves"]
        return found

    def await_move(
        self,
        vm: str,
        show: Callable[[dict[str, Any]], None] = lambda move: None,
        *,
        ready: bool = False,
    ) -> dict[str, Any]:
        """Wait until a VM, or its copy, is the other host's; return the move.

        Errors are those with which the move failed.

        :param show: called with the move now and then
        :param ready: return once a VM that moves live can be handed over, too
        """
        while True:
            move = self.move(vm)
            show(move)
            if move["state"] == "failed":
                raise from_code(move["code"], move["note"])
            # an old device that somebody still has open does not matter any more
            if move["state"] == "done" or move["pause"] is not None:
                return move
            if ready and move["state"] == "ready":
                return move
            time.sleep(_LOOK)

    def finish_move(self, vm: str) -> dict[str, Any]:
        """Have a VM that moves live handed over, as nobody uses it here any more."""
        told: dict[str, Any] = self._call("POST", f"{_move(vm)}/finish")
        return told

    def cancel_move(self, vm: str) -> None:
        """Have a VM stay; one that comes from another host is not taken."""
        self._call("DELETE", _move(vm))

    def images(self) -> Sequence[dict[str, Any]]:
        """Return the images that are attached on this node."""
        found: Sequence[dict[str, Any]] = self._call("GET", "/v1/images")["images"]
        return found

    def drop(self, image: str) -> None:
        """Leave an image that no VM uses."""
        self._call("DELETE", f"/v1/images/{naming.check('image', image)}")

    def scrub(self, image: str) -> dict[str, Any]:
        """Compare an image's cache with its hashes; return ``{"checked", "dropped"}``, in bytes.

        Takes as long as reading the whole image.
        """
        path = f"/v1/images/{naming.check('image', image)}/scrub"
        found: dict[str, Any] = self._call("POST", path, patient=True)
        return found

    def space(self) -> dict[str, int]:
        """Return the bytes for new exception stores: ``{"free", "promised"}``."""
        found: dict[str, int] = self._call("GET", "/v1/space")
        return found

    def cached(self) -> Sequence[dict[str, Any]]:
        """Return the volumes that have the cache group before them."""
        found: Sequence[dict[str, Any]] = self._call("GET", "/v1/cached")["volumes"]
        return found

    def attach(self, device: str, mode: str = "writethrough") -> dict[str, Any]:
        """Put the cache group before a block device; return the volume, use its ``device``.

        :param mode: "writethrough", or "writeback", with which a cache that dies takes data along
        """
        body = {"device": device, "mode": mode}
        made: dict[str, Any] = self._call("POST", "/v1/cached/attach", body)
        return made

    def detach(
        self, device: str, progress: Callable[[dict[str, Any]], object] = lambda volume: None
    ) -> None:
        """Give a block device back, once what only the cache has is written to it.

        :param progress: is called with the volume now and then; "dirty" has the bytes to go
        """
        while left := self._call("POST", "/v1/cached/detach", {"device": device}):
            progress(left)
            time.sleep(_PAUSE)

    def check(self, *, repair: bool = False) -> dict[str, Any]:
        """Compare kernel, records and Volt; return ``{"found": [...], "left": [...]}``.

        :param repair: mend what differs; "left" is what could not be
        """
        method = "POST" if repair else "GET"
        found: dict[str, Any] = self._call(method, "/v1/check", patient=True)
        return found

    def _call(self, method: str, path: str, body: object = None, *, patient: bool = False) -> Any:
        connection = _Connection(self.path, None if patient else self.timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as err:
            raise AgentUnreachable(
                f"the agent does not answer at {self.path} ({err}); check that virtman-agent runs"
            ) from err
        finally:
            connection.close()
        if answer.status < 400:
            return json.loads(text) if text else None
        error = json.loads(text)["error"]
        raise from_code(error["code"], error["message"])


def _instance(vm: str) -> str:
    return f"/v1/instances/{naming.check('VM', vm)}"


def _move(vm: str) -> str:
    return f"/v1/moves/{naming.check('VM', vm)}"


def _snapshot(name: str) -> str:
    return f"/v1/snapshots/{naming.check('snapshot', name)}"
