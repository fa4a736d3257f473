"""The node's own API: which request does what, over a Unix socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from werkzeug.wrappers import Request

from virtman.api.answers import BasedAnswer
from virtman.background import scrub
from virtman.background.boots import Boots
from virtman.background.copying import Copying
from virtman.background.recordings import Recordings
from virtman.coordinator.interface import ImageInfo, Import
from virtman.disk.capacity import volume
from virtman.errors import InvalidRequest, SuspendedUnknown, VirtmanError
from virtman.image.attachment import Attachment, look
from virtman.migration import checkpoints, commits
from virtman.migration.checkpoints import Checkpoints
from virtman.migration.incoming import Arrivals
from virtman.migration.outgoing import Moves
from virtman.migration.phases import Status
from virtman.model.chain import Store
from virtman.model.naming import Device
from virtman.node import cached_volumes
from virtman.node.agent import Agent, Kept, Shown, device_path
from virtman.node.check import KINDS, Check, Difference
from virtman.rest import Answer, Rest, body_of
from virtman.stack.mapped import Table

ROUTES = (
    ("GET", "/healthz", "health"),
    ("GET", "/v1/instances", "list_instances"),
    ("PUT", "/v1/instances/<vm>", "create"),
    ("GET", "/v1/instances/<vm>", "show"),
    ("PATCH", "/v1/instances/<vm>", "change"),
    ("DELETE", "/v1/instances/<vm>", "destroy"),
    ("PUT", "/v1/instances/<vm>/recording", "record"),
    ("GET", "/v1/instances/<vm>/recording", "show_recording"),
    ("DELETE", "/v1/instances/<vm>/recording", "end_recording"),
    ("POST", "/v1/instances/<vm>/rollback", "rollback"),
    ("POST", "/v1/instances/<vm>/clone", "clone"),
    ("POST", "/v1/instances/<vm>/commit", "commit"),
    ("POST", "/v1/instances/<vm>/checkpoint", "checkpoint"),
    ("POST", "/v1/instances/<vm>/migrate", "migrate"),
    ("POST", "/v1/instances/<vm>/suspend", "suspend"),
    ("GET", "/v1/suspended/<image>", "show_suspended"),
    ("GET", "/v1/checkpoints", "list_checkpoints"),
    ("DELETE", "/v1/checkpoints/<vm>", "stop_checkpoints"),
    ("GET", "/v1/layers", "list_layers"),
    ("POST", "/v1/layers", "import_layer"),
    ("GET", "/v1/layers/<layer>", "show_layer"),
    ("GET", "/v1/layers/<layer>/file", "export_layer"),
    ("DELETE", "/v1/layers/<layer>", "remove_layer"),
    ("GET", "/v1/moves", "list_moves"),
    ("GET", "/v1/moves/<vm>", "show_move"),
    ("DELETE", "/v1/moves/<vm>", "cancel_move"),
    ("POST", "/v1/moves/<vm>/finish", "finish_move"),
    ("GET", "/v1/snapshots", "list_snapshots"),
    ("PUT", "/v1/snapshots/<snapshot>", "snapshot"),
    ("GET", "/v1/snapshots/<snapshot>", "show_snapshot"),
    ("DELETE", "/v1/snapshots/<snapshot>", "delete_snapshot"),
    ("GET", "/v1/images", "list_images"),
    ("GET", "/v1/images/<image>", "show_image"),
    ("DELETE", "/v1/images/<image>", "drop"),
    ("POST", "/v1/images/<image>/hydrate", "hydrate"),
    ("POST", "/v1/images/<image>/release", "release"),
    ("POST", "/v1/images/<image>/scrub", "scrub"),
    ("POST", "/v1/images/<image>/want", "want"),
    ("POST", "/v1/images/<image>/warm", "warm"),
    ("GET", "/v1/space", "space"),
    ("GET", "/v1/cached", "list_cached"),
    ("POST", "/v1/cached/attach", "attach"),
    ("POST", "/v1/cached/detach", "detach"),
    ("GET", "/v1/check", "check"),
    ("POST", "/v1/check", "repair"),
)

_PIECE = 1024 * 1024


class Api(Rest):
    """A WSGI application over one agent, and what goes on beside it: moves, boots, copies."""

    routes = ROUTES

    def __init__(
        self,
        agent: Agent,
        moves: Moves,
        arrivals: Arrivals,
        boots: Boots,
        copying: Copying,
        checkpoints: Checkpoints,
    ) -> None:
        super().__init__()
        self.agent = agent
        self.checkpoints = checkpoints
        self.commits = checkpoints.commits
        self.copying = copying
        self.boots = boots
        self.recordings = Recordings(agent, boots)
        self.moves = moves
        self.arrivals = arrivals

    def health(self, request: Request) -> Answer:
        """Say that the agent answers."""
        return 200, {"status": "ok", "host": self.agent.host.name}

    def list_instances(self, request: Request) -> Answer:
        """Return all VMs."""
        return 200, {"instances": [_shown(one) for one in self.agent.list()]}

    def show(self, request: Request, vm: str) -> Answer:
        """Return one VM."""
        return 200, _shown(self.agent.show(vm))

    def create(self, request: Request, vm: str) -> Answer:
        """Give a VM its device; the body names an image, a snapshot or another VM."""
        body = body_of(
            request, image=str, snapshot=str, vm=str, size=int, quota=int, store=str,
            temporary=bool,
        )  # fmt: skip
        original = body.pop("vm", "")
        if bool(original) == bool(body.keys() & {"image", "snapshot"}):
            raise InvalidRequest(
                'the body must be {"image": "<name>"}, {"snapshot": "<name>"} or {"vm": "<name>"}'
            )
        self.agent.create(vm, original=original, **body)
        return 201, _shown(self.agent.show(vm))

    def change(self, request: Request, vm: str) -> Answer:
        """Give a VM a longer disk, another quota, or both."""
        body = body_of(request, size=int, quota=int)
        if not body:
            raise InvalidRequest('the body must have "size": <bytes>, "quota": <bytes>, or both')
        if "size" in body:
            self.agent.resize(vm, body["size"])
        if "quota" in body:
            self.agent.limit(vm, body["quota"])
        return 200, _shown(self.agent.show(vm))

    def destroy(self, request: Request, vm: str) -> Answer:
        """Take a VM's device away."""
        self.agent.destroy(vm)
        return 204, None

    def record(self, request: Request, vm: str) -> Answer:
        """Begin to record what a VM reads; the body is ``{"workload": name, "seconds": int}``."""
        body = body_of(request, workload=str, seconds=int)
        if "workload" not in body:
            raise InvalidRequest(
                'the body must be {"workload": "<name>"}, and can have "seconds": <seconds>'
            )
        return 201, asdict(self.recordings.begin(vm, **body))

    def show_recording(self, request: Request, vm: str) -> Answer:
        """Return what was recorded of a VM."""
        return 200, asdict(self.recordings.show(vm))

    def end_recording(self, request: Request, vm: str) -> Answer:
        """Have what was recorded of a VM stored."""
        return 202, asdict(self.recordings.end(vm))

    def rollback(self, request: Request, vm: str) -> Answer:
        """Have a VM begin anew at one of its snapshots."""
        body = body_of(request, snapshot=str)
        if not body:
            raise InvalidRequest('the body must be {"snapshot": "<name>"}')
        self.agent.rollback(vm, body["snapshot"])
        return 200, _shown(self.agent.show(vm))

    def clone(self, request: Request, vm: str) -> Answer:
        """Begin to copy a VM to another host; the body is ``{"host": name, "as": name}``."""
        body = body_of(request, **{"host": str, "as": str})
        if "host" not in body:
            raise InvalidRequest('the body must be {"host": "<name>"}, and can have "as": "<name>"')
        return 202, _moving(self.moves.clone(vm, body["host"], body.get("as", vm)))

    def migrate(self, request: Request, vm: str) -> Answer:
        """Begin to move a VM to another host; the body is ``{"host": name, "live": bool}``."""
        body = body_of(request, host=str, live=bool)
        if "host" not in body:
            raise InvalidRequest('the body must be {"host": "<name>"}, and can have "live": true')
        return 202, _moving(self.moves.migrate(vm, **body))

    def commit(self, request: Request, vm: str) -> Answer:
        """Begin to make what a VM wrote a layer; the body is ``{"as": name, "final": bool}``."""
        body = body_of(request, **{"as": str, "final": bool})
        if "as" not in body:
            raise InvalidRequest('the body must be {"as": "<name>"}, and can have "final": true')
        return 202, _committed(self.commits.commit(vm, body["as"], final=body.get("final", False)))

    def suspend(self, request: Request, vm: str) -> Answer:
        """Begin to make a suspended image of a VM; the body has its name, and QEMU's socket."""
        kinds = {"as": str, "qmp": str, "force": bool, "saved": str, "project": str}
        body = body_of(request, **kinds)
        if not {"as", "qmp"} <= body.keys():
            raise InvalidRequest(
                'the body must be {"as": "<name>", "qmp": "<path>"}, and can have "force": true, '
                '"saved": "<path>" and "project": "<name>"'
            )
        begun = self.commits.suspend(
            vm,
            body["as"],
            body["qmp"],
            forced=body.get("force", False),
            saved=body.get("saved", ""),
            project=body.get("project", ""),
        )
        return 202, _committed(begun)

    def show_suspended(self, request: Request, image: str) -> Answer:
        """Return what it takes to resume VMs of a suspended image, and what has their memory."""
        info = self.agent.coordinator.image(image)
        if info.layer is None or info.layer.suspended is None:
            raise SuspendedUnknown(f"image {image} is no suspended image")
        device = Device(image, "base").node
        return 200, {"image": image, "device": device} | asdict(info.layer.suspended)

    def checkpoint(self, request: Request, vm: str) -> Answer:
        """Begin to make a checkpoint of a VM; the body is ``{"every": seconds, "keep": int}``."""
        return 202, _committed(self.checkpoints.make(vm, **body_of(request, every=int, keep=int)))

    def list_checkpoints(self, request: Request) -> Answer:
        """Return the VMs of which checkpoints are made."""
        return 200, {"checkpoints": [_scheduled(one) for one in self.checkpoints.all()]}

    def stop_checkpoints(self, request: Request, vm: str) -> Answer:
        """Make no more checkpoints of a VM."""
        self.checkpoints.end(vm)
        return 204, None

    def list_layers(self, request: Request) -> Answer:
        """Return the layers that this node has made, and commits that have failed."""
        return 200, {"layers": [_committed(one) for one in self.commits.all()]}

    def show_layer(self, request: Request, layer: str) -> Answer:
        """Return how far a layer is."""
        return 200, _committed(self.commits.show(layer))

    def export_layer(self, request: Request, layer: str) -> Answer:
        """Return a layer as a file that goes elsewhere."""
        return 200, self.commits.file_of(layer)

    def import_layer(self, request: Request) -> Answer:
        """Begin to have the layer in such a file, which is the body, under the name ``?as=``."""
        request.max_content_length = None
        try:
            return 202, _committed(self.commits.receive(request.stream, request.args.get("as", "")))
        except VirtmanError:
            while request.stream.read(_PIECE):  # the answer is seen by who has sent all
                pass
            raise

    def remove_layer(self, request: Request, layer: str) -> Answer:
        """Have a layer no more, or a commit given up; 202 while that is not done."""
        done = self.commits.remove(layer, elsewhere=request.args.get("elsewhere") == "true")
        return (204, None) if done else (202, _committed(self.commits.show(layer)))

    def list_moves(self, request: Request) -> Answer:
        """Return the moves from this node, those that ended since the agent started too."""
        return 200, {"moves": [_moving(one) for one in self.moves.all()]}

    def show_move(self, request: Request, vm: str) -> Answer:
        """Return how far a VM is on its way from here."""
        return 200, _moving(self.moves.show(vm))

    def cancel_move(self, request: Request, vm: str) -> Answer:
        """Have a VM stay, or one that comes from another host not come."""
        if self.agent.records.arrival(vm) is not None:
            self.arrivals.give_up(vm)
        else:
            self.moves.cancel(vm)
        return 204, None

    def finish_move(self, request: Request, vm: str) -> Answer:
        """Have a VM that moves live handed over."""
        return 202, _moving(self.moves.finish(vm))

    def list_snapshots(self, request: Request) -> Answer:
        """Return all snapshots, or those of the VM in ``?vm=``."""
        vm = request.args.get("vm")
        found = self.agent.snapshots()
        return 200, {"snapshots": [_kept(one) for one in found if vm in (None, one.snapshot.vm)]}

    def snapshot(self, request: Request, snapshot: str) -> Answer:
        """Keep a VM's data; the body is ``{"vm": name}``."""
        body = body_of(request, vm=str)
        if not body:
            raise InvalidRequest('the body must be {"vm": "<name>"}')
        self.agent.snapshot(body["vm"], snapshot)
        return 201, _kept(self.agent.show_snapshot(snapshot))

    def show_snapshot(self, request: Request, snapshot: str) -> Answer:
        """Return one snapshot."""
        return 200, _kept(self.agent.show_snapshot(snapshot))

    def delete_snapshot(self, request: Request, snapshot: str) -> Answer:
        """Forget a snapshot."""
        self.agent.delete_snapshot(snapshot)
        return 204, None

    def list_images(self, request: Request) -> Answer:
        """Return the images that are attached here."""
        attached = self.agent.images.attachments()
        seen = look(attached)
        return 200, {"images": [self._image(one, seen) for one in attached]}

    def show_image(self, request: Request, image: str) -> Answer:
        """Return one image that is attached here."""
        found = self.agent.images.attached(image)
        return 200, self._image(found, look([found]))

    def hydrate(self, request: Request, image: str) -> Answer:
        """Begin to copy a whole image to this node; the body is ``{"rate": bytes/s}``."""
        self.copying.hydrate(image, **body_of(request, rate=int))
        return 202, self._copy(image)

    def release(self, request: Request, image: str) -> Answer:
        """Give a copy of a whole image back."""
        self.copying.release(image)
        return 204, None

    def want(self, request: Request, image: str) -> Answer:
        """Have an image made that Volt may not know yet; say how far that is."""
        found = self.agent.images.want(image)
        if isinstance(found, ImageInfo):
            return 200, {"size": found.size} | _wanted(Import(image, "known"))
        return 200, {"size": None} | _wanted(found)

    def warm(self, request: Request, image: str) -> Answer:
        """Begin to fetch what VMs will read of an image; the body is ``{"workload": name}``."""
        self.boots.warm(image, **body_of(request, workload=str))
        return 202, self._ahead(image)

    def _image(self, one: Attachment, seen: Mapping[str, Table]) -> dict[str, Any]:
        return {
            "image": one.info.name,
            "size": one.info.size,
            "parent": one.info.layer.parent if one.info.layer else None,
            "generation": one.generation,
            "parents": list(one.parents),
            "instances": sorted(one.vms),
            "warm": one.is_warm,
            "local": one.is_local,
            "based": _based(one.info),
            "lenders": list(one.lenders),
            "waiting": one.waiting,
            "cache": asdict(one.figures(seen)),
            "ahead": self._ahead(one.info.name),
            "copy": self._copy(one.info.name),
        }

    def _copy(self, image: str) -> dict[str, Any] | None:
        found = self.copying.progress(image)
        return asdict(found) if found else None

    def _ahead(self, image: str) -> dict[str, Any] | None:
        found = self.boots.ahead(image)
        return asdict(found) if found else None

    def drop(self, request: Request, image: str) -> Answer:
        """Leave an image now."""
        self.agent.images.drop(image)
        return 204, None

    def scrub(self, request: Request, image: str) -> Answer:
        """Compare what is here of an image with its hashes, and drop what is wrong."""
        found = self.agent.images.attached(image)
        return 200, asdict(self.copying.scrub(image) if found.is_local else scrub.scrub(found))

    def space(self, request: Request) -> Answer:
        """Return how much there is for new exception stores."""
        return 200, asdict(self.agent.stores.space.room())

    def list_cached(self, request: Request) -> Answer:
        """Return the volumes that have the cache before them."""
        return 200, {"volumes": [_cached(one) for one in self.agent.cached.list()]}

    def attach(self, request: Request) -> Answer:
        """Put the cache before a volume."""
        body = body_of(request, device=str, mode=str)
        if "device" not in body:
            raise InvalidRequest('the body must be {"device": "<path>"}')
        mode = body.get("mode", cached_volumes.WRITETHROUGH)
        return 201, _cached(self.agent.cached.attach(body["device"], mode))

    def detach(self, request: Request) -> Answer:
        """Give a volume back; 202 while it is being emptied."""
        body = body_of(request, device=str)
        if not body:
            raise InvalidRequest('the body must be {"device": "<path>"}')
        left = self.agent.cached.detach(body["device"])
        return (204, None) if left is None else (202, _cached(left))

    def check(self, request: Request) -> Answer:
        """Return what differs between kernel, records and Volt."""
        found = Check(self.agent).look()
        return 200, {"found": _differences(found), "left": _differences(found)}

    def repair(self, request: Request) -> Answer:
        """Mend that."""
        outcome = Check(self.agent).repair()
        return 200, {"found": _differences(outcome.found), "left": _differences(outcome.left)}


def _based(info: ImageInfo) -> BasedAnswer | None:
    if info.based is None:
        return None
    return BasedAnswer(images=list(info.based.images), shared=info.based.shared)


def _wanted(found: Import) -> dict[str, Any]:
    told = ("image", "state", "importer", "done", "total", "detail")
    return {name: getattr(found, name) for name in told}


def _cached(found: cached_volumes.Shown) -> dict[str, Any]:
    volume = found.volume
    return {
        "volume": volume.path,
        "device": volume.device,
        "size": volume.size,
        "mode": volume.mode,
        "state": found.state,
        "dirty": found.dirty,
        "cache": asdict(found.figures),
    }


def _differences(found: Iterable[Difference]) -> list[dict[str, str]]:
    return [
        {"code": one.code, "what": one.what, "meaning": KINDS[one.code][0],
         "repair": KINDS[one.code][1]}
        for one in found
    ]  # fmt: skip


def _shown(found: Shown) -> dict[str, Any]:
    vm = found.instance
    return {
        "vm": vm.vm,
        "image": vm.image,
        "device": device_path(vm),
        "size": vm.size,
        "state": found.state,
        "taken": found.taken,
        "quota": vm.quota,
        "temporary": vm.temporary,
        "stores": [_store(one) for one in found.chain],
        "snapshots": list(found.snapshots),
    }


def _moving(status: Status) -> dict[str, Any]:
    move = status.move
    return {
        "vm": move.vm,
        "kind": "clone" if move.keeps else "migrate",
        "live": move.live,
        "host": move.host,
        "as": move.name,
        "round": move.round,
        "state": status.state,
        "sent": status.sent,
        "wire": status.wire,
        "left": status.left,
        "pause": status.pause,
        "note": status.note,
        "code": status.code,
    }


def _committed(status: commits.Status) -> dict[str, Any]:
    commit = status.commit
    return {
        "layer": commit.name,
        "image": commit.image,
        "vm": commit.vm,
        "disk_size": commit.disk_size,
        "final": commit.final,
        "created_at": timestamp(commit.created_at),
        "state": status.state,
        "done": status.done,
        "total": status.total,
        "length": status.length,
        "note": status.note,
        "code": status.code,
    }


def _scheduled(found: checkpoints.Shown) -> dict[str, Any]:
    return asdict(found.schedule) | {
        "layers": [one.name for one in found.layers],
        "created_at": timestamp(found.layers[-1].created_at) if found.layers else None,
        "note": found.note,
    }


def _kept(found: Kept) -> dict[str, Any]:
    return {
        "snapshot": found.snapshot.name,
        "vm": found.snapshot.vm,
        "image": found.snapshot.image,
        "size": found.snapshot.size,
        "created_at": timestamp(found.snapshot.created_at),
        "stores": [_store(one) for one in found.chain],
    }


def _store(store: Store) -> dict[str, Any]:
    allocated = volume(store).allocated()
    return {"path": store.path, "allocated": allocated, "merging": store.merging}


def timestamp(seconds: float) -> str:
    """Return a moment in the form of RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
