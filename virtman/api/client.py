"""The agent's verbs as Python calls, over its Unix socket."""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from virtman.api.answers import (
    AheadAnswer,
    CheckAnswer,
    CheckpointsAnswer,
    CopyAnswer,
    ImageAnswer,
    LayerAnswer,
    MoveAnswer,
    RecordingAnswer,
    ScrubAnswer,
    SnapshotAnswer,
    SpaceAnswer,
    VmAnswer,
    VolumeAnswer,
    WantAnswer,
)
from virtman.errors import (
    AgentUnreachable,
    CopyUnknown,
    ImageUnknown,
    ImportFailed,
    from_code,
)
from virtman.model import naming, suspended
from virtman.model.profile import BOOT
from virtman.model.suspended import Suspended

_TIMEOUT = 300.0
_LOOK = 0.2
_PAUSE = 0.5
_PIECE = 1024 * 1024


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
    :param timeout: seconds that an answer may take
    :param patience: seconds to wait for an agent that does not listen, as while it is started anew
    """

    def __init__(self, path: str, timeout: float = _TIMEOUT, patience: float = 0.0) -> None:
        self.path = path
        self.timeout = timeout
        self.patience = patience

    def within(self, seconds: float) -> Client:
        """Return the same agent, for questions whose answer must not take longer."""
        return Client(self.path, seconds)

    def create(
        self,
        vm: str,
        image: str = "",
        *,
        snapshot: str = "",
        original: str = "",
        size: int | None = None,
        quota: int | None = None,
        store: str = "",
        temporary: bool = False,
    ) -> VmAnswer:
        """Give a VM its device, over an image or as of a snapshot; return the VM.

        :param original: a VM that goes on, whose data of now the VM begins with
        :param size: bytes of its disk; None for those of the image or snapshot
        :param quota: bytes that its stores may take; None for what the agent is told
        :param store: path of a block device that takes what the VM writes
        :param temporary: it goes by itself once nobody has had its device open for a minute
        """
        body: dict[str, Any] = {}
        if image:
            body["image"] = naming.check("image", image)
        if snapshot:
            body["snapshot"] = naming.check("snapshot", snapshot)
        if size is not None:
            body["size"] = size
        if quota is not None:
            body["quota"] = quota
        if original:
            body["vm"] = naming.check("VM", original)
        if store:
            body["store"] = store
        if temporary:
            body["temporary"] = True
        return cast("VmAnswer", self._call("PUT", _instance(vm), body))

    def show(self, vm: str) -> VmAnswer:
        """Return one VM."""
        return cast("VmAnswer", self._call("GET", _instance(vm)))

    def limit(self, vm: str, quota: int) -> VmAnswer:
        """Give a VM another quota, in bytes; 0 for none."""
        return cast("VmAnswer", self._call("PATCH", _instance(vm), {"quota": quota}))

    def resize(self, vm: str, size: int) -> VmAnswer:
        """Make a VM's disk so many bytes long, while it runs; never shorter than it is."""
        return cast("VmAnswer", self._call("PATCH", _instance(vm), {"size": size}))

    def destroy(self, vm: str) -> None:
        """Take a VM's device away."""
        self._call("DELETE", _instance(vm))

    def snapshot(self, vm: str, snapshot: str) -> SnapshotAnswer:
        """Keep a VM's data as of now, while it runs; return the snapshot."""
        body = {"vm": naming.check("VM", vm)}
        return cast("SnapshotAnswer", self._call("PUT", _snapshot(snapshot), body))

    def rollback(self, vm: str, snapshot: str) -> VmAnswer:
        """Have a VM begin anew at one of its snapshots."""
        body = {"snapshot": naming.check("snapshot", snapshot)}
        return cast("VmAnswer", self._call("POST", f"{_instance(vm)}/rollback", body))

    def snapshots(self, vm: str = "") -> Sequence[SnapshotAnswer]:
        """Return all snapshots, or those of one VM; the oldest first."""
        query = f"?vm={naming.check('VM', vm)}" if vm else ""
        return cast(
            "Sequence[SnapshotAnswer]", self._call("GET", f"/v1/snapshots{query}")["snapshots"]
        )

    def show_snapshot(self, snapshot: str) -> SnapshotAnswer:
        """Return one snapshot."""
        return cast("SnapshotAnswer", self._call("GET", _snapshot(snapshot)))

    def delete_snapshot(self, snapshot: str) -> None:
        """Forget a snapshot; what only it needs goes."""
        self._call("DELETE", _snapshot(snapshot))

    def list(self) -> Sequence[VmAnswer]:
        """Return the VMs of this node."""
        return cast("Sequence[VmAnswer]", self._call("GET", "/v1/instances")["instances"])

    def clone(self, vm: str, host: str, name: str = "") -> MoveAnswer:
        """Begin to copy a VM to another host, as of now, while it runs; return the move.

        :param name: of the copy; empty for the same
        """
        body = {"host": naming.check("host", host), "as": naming.check("VM", name or vm)}
        return cast("MoveAnswer", self._call("POST", f"{_instance(vm)}/clone", body))

    def migrate(self, vm: str, host: str, *, live: bool = False) -> MoveAnswer:
        """Begin to move a VM to another host while it runs; return the move.

        :param live: it is handed over once ``finish_move`` is called; the other host has a device
            for it from now on, which fails all I/O until then
        """
        body: dict[str, Any] = {"host": naming.check("host", host)}
        if live:
            body["live"] = True
        return cast("MoveAnswer", self._call("POST", f"{_instance(vm)}/migrate", body))

    def move(self, vm: str) -> MoveAnswer:
        """Return how far a VM is on its way to another host, or how that ended."""
        return cast("MoveAnswer", self._call("GET", _move(vm)))

    def moves(self) -> Sequence[MoveAnswer]:
        """Return the moves from this node, ended ones too."""
        return cast("Sequence[MoveAnswer]", self._call("GET", "/v1/moves")["moves"])

    def await_move(
        self,
        vm: str,
        show: Callable[[MoveAnswer], None] = lambda move: None,
        *,
        ready: bool = False,
    ) -> MoveAnswer:
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

    def commit(self, vm: str, name: str, *, final: bool = False) -> LayerAnswer:
        """Begin to make what a VM wrote up to now a layer; return how far that is.

        :param final: have the VM go once the layer is kept
        """
        body = {"as": naming.check("layer", name), "final": final}
        return cast("LayerAnswer", self._call("POST", f"{_instance(vm)}/commit", body))

    def suspend(
        self,
        vm: str,
        name: str,
        qmp: str,
        *,
        forced: bool = False,
        saved: str = "",
        project: str = "",
    ) -> LayerAnswer:
        """Begin to make a suspended image of a VM, which goes on after a moment.

        :param name: of the layer that has its disk and its memory
        :param qmp: socket at which the VM's QEMU answers nobody else
        :param forced: although it has network cards, or somebody is logged in
        :param saved: file with the memory of a VM that QEMU saved elsewhere; that QEMU never ran
        :param project: whose VMs alone may have the memory; empty for that of the VM, or of the
            image, if it was resumed
        """
        body: dict[str, object] = {"as": naming.check("layer", name), "qmp": qmp, "force": forced}
        body |= {"saved": saved} if saved else {}
        body |= {"project": project} if project else {}
        return cast("LayerAnswer", self._call("POST", f"{_instance(vm)}/suspend", body))

    def suspended(self, image: str) -> tuple[Suspended, str]:
        """Return what it takes to resume VMs of a suspended image, and what has their memory.

        :raises SuspendedUnknown: if it is none
        """
        found = self._call("GET", f"/v1/suspended/{naming.check('image', image)}")
        del found["image"]
        device = str(found.pop("device"))
        return suspended.parse(found), device

    def layer(self, name: str) -> LayerAnswer:
        """Return one layer that this node has made, or makes."""
        return cast("LayerAnswer", self._call("GET", _layer(name)))

    def layers(self) -> Sequence[LayerAnswer]:
        """Return the layers of this node, and commits that have failed."""
        return cast("Sequence[LayerAnswer]", self._call("GET", "/v1/layers")["layers"])

    def await_layer(
        self, name: str, show: Callable[[LayerAnswer], None] = lambda layer: None
    ) -> LayerAnswer:
        """Wait until a layer is kept; return it. Errors are those with which its commit failed.

        :param show: called with the layer now and then
        """
        while True:
            layer = self.layer(name)
            show(layer)
            if layer["state"] == "failed":
                raise from_code(layer["code"], layer["note"])
            if layer["state"] == "kept":
                return layer
            time.sleep(_LOOK)

    def export_layer(self, name: str) -> Iterator[bytes]:
        """Return a layer that this node has made as a file that goes elsewhere, in pieces."""
        with self._asked("GET", f"{_layer(name)}/file") as answer:
            while piece := answer.read(_PIECE):
                yield piece

    def import_layer(self, file: BinaryIO, name: str = "") -> LayerAnswer:
        """Begin to have the layer in such a file; return how far that is.

        :param name: of the layer here; empty for the one that it had
        """
        query = f"?as={naming.check('layer', name)}" if name else ""
        with self._asked("POST", f"/v1/layers{query}", file) as answer:
            return cast("LayerAnswer", json.loads(answer.read()))

    def remove_layer(self, name: str, *, elsewhere: bool = False) -> None:
        """Delete a layer that this node has made, or give its commit up.

        :param elsewhere: if it is needed, a host that has all of it stands for this one
        """
        self._call("DELETE", _layer(name) + ("?elsewhere=true" if elsewhere else ""))

    def checkpoint(
        self, vm: str, *, every: int | None = None, keep: int | None = None
    ) -> LayerAnswer:
        """Begin to make a checkpoint of a VM; return how far the layer is that it becomes.

        :param every: seconds from one to the next, for more of them by themselves; 0 for no more
        :param keep: how many of the latest stay
        """
        given = {"every": every, "keep": keep}
        body = {key: value for key, value in given.items() if value is not None}
        return cast("LayerAnswer", self._call("POST", f"{_instance(vm)}/checkpoint", body))

    def checkpoints(self) -> Sequence[CheckpointsAnswer]:
        """Return the VMs of which checkpoints are made."""
        return cast(
            "Sequence[CheckpointsAnswer]", self._call("GET", "/v1/checkpoints")["checkpoints"]
        )

    def stop_checkpoints(self, vm: str) -> None:
        """Make no more checkpoints of a VM."""
        self._call("DELETE", f"/v1/checkpoints/{naming.check('VM', vm)}")

    def finish_move(self, vm: str) -> MoveAnswer:
        """Have a VM that moves live handed over, as nobody uses it here any more."""
        return cast("MoveAnswer", self._call("POST", f"{_move(vm)}/finish"))

    def cancel_move(self, vm: str) -> None:
        """Have a VM stay; one that comes from another host is not taken."""
        self._call("DELETE", _move(vm))

    def record(self, vm: str, workload: str, seconds: int | None = None) -> RecordingAnswer:
        """Begin to record what a VM reads of its image, as a workload's profile.

        :param seconds: for which it is recorded; None: until told
        """
        body = {"workload": workload} | ({} if seconds is None else {"seconds": seconds})
        return cast("RecordingAnswer", self._call("PUT", _recording(vm), body))

    def recording(self, vm: str) -> RecordingAnswer:
        """Return what was recorded of a VM last."""
        return cast("RecordingAnswer", self._call("GET", _recording(vm)))

    def end_recording(self, vm: str) -> RecordingAnswer:
        """Have what was recorded of a VM stored soon."""
        return cast("RecordingAnswer", self._call("DELETE", _recording(vm)))

    def images(self) -> Sequence[ImageAnswer]:
        """Return the images that are attached on this node."""
        return cast("Sequence[ImageAnswer]", self._call("GET", "/v1/images")["images"])

    def image(self, image: str) -> ImageAnswer:
        """Return one image that is attached on this node."""
        return cast("ImageAnswer", self._call("GET", _image(image)))

    def hydrate(self, image: str, rate: int | None = None) -> CopyAnswer:
        """Begin to copy a whole image to this node, or go on at another rate; return how far it is.

        :param rate: bytes/s; None for no limit but those of all that is fetched ahead
        """
        body = {} if rate is None else {"rate": rate}
        return cast("CopyAnswer", self._call("POST", f"{_image(image)}/hydrate", body))

    def await_copy(
        self, image: str, show: Callable[[CopyAnswer], object] = lambda copy: None
    ) -> CopyAnswer:
        """Wait until an image that is being copied needs no parents, or no more is copied.

        :param show: called with how far it is now and then
        :raises CopyUnknown: if the copy is given back meanwhile
        """
        while True:
            found = self.image(image)
            copy = found["copy"]
            if copy is None:
                raise CopyUnknown(f"image {image} is not copied to this node any more")
            show(copy)
            if found["local"] or copy["state"] == "stopped":
                return copy
            time.sleep(_PAUSE)

    def release(self, image: str) -> None:
        """Give the copy of a whole image back; parents feed it from then on."""
        self._call("POST", f"{_image(image)}/release", patient=True)

    def drop(self, image: str) -> None:
        """Leave an image that no VM uses."""
        self._call("DELETE", f"/v1/images/{naming.check('image', image)}")

    def want(self, image: str) -> WantAnswer:
        """Have an image made that Volt may not know yet; return how far that is.

        It is wanted for a minute; whoever waits for it asks again before that.
        """
        path = f"/v1/images/{naming.check('image', image)}/want"
        return cast("WantAnswer", self._call("POST", path))

    def await_image(
        self,
        image: str,
        show: Callable[[WantAnswer], object] = lambda found: None,
        *,
        patience: float = math.inf,
        pause: Callable[[float], None] = time.sleep,
    ) -> WantAnswer:
        """Have an image made that Volt may not know yet; return it once it is known.

        :param show: called with how far it is now and then
        :param patience: seconds for which nobody may make it
        :raises ImportFailed: if it cannot be made
        :raises ImageUnknown: if nobody makes it
        """
        idle = 0.0
        while True:
            found = self.want(image)
            if found["state"] == "known":
                return found
            if found["state"] == "failed":
                # The reason first: nova shows the begin of an error only.
                raise ImportFailed(f"{found['detail']} (image {image}, at {found['importer']})")
            idle = idle + _PAUSE if found["state"] == "wanted" else 0.0
            if idle > patience:
                raise ImageUnknown(
                    f"nobody makes image {image}: check that virtman-images runs, and that it "
                    "reaches Volt and Glance ('volt-manage import list' shows what is wanted)"
                )
            show(found)
            pause(_PAUSE)

    def warm(
        self,
        image: str,
        show: Callable[[AheadAnswer], object] = lambda ahead: None,
        *,
        workload: str = BOOT,
        until: Callable[[AheadAnswer], bool] = lambda ahead: False,
    ) -> AheadAnswer:
        """Have fetched what VMs will read of an image; return once it is there.

        :param workload: whose profile says what that is
        :param show: called with how far it is now and then
        :param until: tells whether enough is there already
        :raises ImageUnknown: if the image was left meanwhile
        """
        path = f"/v1/images/{naming.check('image', image)}/warm"
        ahead = self._call("POST", path, {"workload": naming.check("workload", workload)})
        while ahead is None or ahead["state"] == "fetching":
            if ahead is not None:
                if until(ahead):
                    break
                show(ahead)
            time.sleep(_LOOK)
            found = [one for one in self.images() if one["image"] == image]
            if not found:
                raise ImageUnknown(f"image {image} was left meanwhile: warm it again")
            ahead = found[0]["ahead"]
        return cast("AheadAnswer", ahead)

    def scrub(self, image: str) -> ScrubAnswer:
        """Compare an image's cache with its hashes; return what it did.

        Takes as long as reading the whole image.
        """
        path = f"/v1/images/{naming.check('image', image)}/scrub"
        return cast("ScrubAnswer", self._call("POST", path, patient=True))

    def space(self) -> SpaceAnswer:
        """Return what there is for new exception stores."""
        return cast("SpaceAnswer", self._call("GET", "/v1/space"))

    def cached(self) -> Sequence[VolumeAnswer]:
        """Return the volumes that have the cache group before them."""
        return cast("Sequence[VolumeAnswer]", self._call("GET", "/v1/cached")["volumes"])

    def attach(self, device: str, mode: str = "writethrough") -> VolumeAnswer:
        """Put the cache group before a block device; return the volume, use its ``device``.

        :param mode: "writethrough", or "writeback", with which a cache that dies takes data along
        """
        body = {"device": device, "mode": mode}
        return cast("VolumeAnswer", self._call("POST", "/v1/cached/attach", body))

    def detach(
        self, device: str, progress: Callable[[VolumeAnswer], object] = lambda volume: None
    ) -> None:
        """Give a block device back, once what only the cache has is written to it.

        :param progress: is called with the volume now and then; "dirty" has the bytes to go
        """
        while left := self._call("POST", "/v1/cached/detach", {"device": device}):
            progress(left)
            time.sleep(_PAUSE)

    def check(self, *, repair: bool = False) -> CheckAnswer:
        """Compare kernel, records and Volt; return what differs.

        :param repair: mend what differs; "left" is what could not be
        """
        method = "POST" if repair else "GET"
        return cast("CheckAnswer", self._call(method, "/v1/check", patient=True))

    def _call(self, method: str, path: str, body: object = None, *, patient: bool = False) -> Any:
        text = None if body is None else json.dumps(body)
        with self._asked(method, path, text, patient=patient) as answer:
            found = answer.read()
        return json.loads(found) if found else None

    @contextmanager
    def _asked(
        self, method: str, path: str, body: BinaryIO | str | None = None, *, patient: bool = False
    ) -> Iterator[http.client.HTTPResponse]:
        """Give the agent's answer, still to be read; errors are raised."""
        connection = _Connection(self.path, None if patient else self.timeout)
        try:
            self._connect(connection)
            if body is None or isinstance(body, str):
                connection.request(method, path, body)
            else:
                length = str(os.fstat(body.fileno()).st_size)
                connection.request(method, path, body, {"Content-Length": length})
            answer = connection.getresponse()
            if answer.status < 400:
                yield answer
                return
            text = answer.read()
        except (OSError, http.client.HTTPException) as err:
            raise AgentUnreachable(
                f"the agent does not answer at {self.path} ({err}); check that virtman-agent runs"
            ) from err
        finally:
            connection.close()
        error = json.loads(text)["error"]
        raise from_code(error["code"], error["message"])

    def _connect(self, connection: _Connection) -> None:
        """Connect; whoever does not listen has not heard anything, so trying again is safe."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return connection.connect()
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise
            connection.close()
            time.sleep(_PAUSE)


def _image(image: str) -> str:
    return f"/v1/images/{naming.check('image', image)}"


def _instance(vm: str) -> str:
    return f"/v1/instances/{naming.check('VM', vm)}"


def _move(vm: str) -> str:
    return f"/v1/moves/{naming.check('VM', vm)}"


def _recording(vm: str) -> str:
    return f"/v1/instances/{naming.check('VM', vm)}/recording"


def _snapshot(name: str) -> str:
    return f"/v1/snapshots/{naming.check('snapshot', name)}"


def _layer(name: str) -> str:
    return f"/v1/layers/{naming.check('layer', name)}"
