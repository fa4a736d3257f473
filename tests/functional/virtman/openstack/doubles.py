"""Cinder and the agent of a node, as truthful as the code under test can tell."""

import itertools
from types import SimpleNamespace

from virtman.errors import (
    AgentUnreachable,
    DeviceBusy,
    ImageUnknown,
    ImportFailed,
    InstanceExists,
    InstanceSize,
    InstanceUnknown,
    MoveHanded,
    MoveInProgress,
    MoveUnknown,
    PeerUnknown,
)


class Refusal(Exception):
    """What cinderclient raises."""

    def __init__(self, code, message=""):
        super().__init__(message)
        self.code = code


class FakeCinderClient:
    """The volumes of one project, behind the calls of cinderclient.

    As in Cinder, only one attachment of a volume can be on its way at a time, a volume that has
    one cannot be deleted, and the attachments of the raw API are flat.

    :ivar polls: how often a volume is looked at before it is available
    """

    def __init__(self, polls=0):
        self.polls = polls
        self.becomes = "available"
        self.kept = {}
        self.calls = []
        self.numbers = itertools.count(1)
        self.volumes = SimpleNamespace(
            list=self.list, create=self.create, get=self.get, delete=self.delete
        )
        self.attachments = SimpleNamespace(
            create=self.attach,
            complete=self.complete,
            delete=self.detach,
            show=self.show_attachment,
            list=self.list_attachments,
        )

    def list(self, detailed, search_opts):
        self.calls.append("list")
        name = search_opts.get("name")
        return [self._seen(one) for one in self.kept.values() if name in (None, one.name)]

    def create(self, size, name, volume_type, metadata, **made_of):
        self.calls.append("create")
        volume = SimpleNamespace(
            id=f"v{next(self.numbers)}",
            name=name,
            status="creating",
            created_at=f"2026-11-20T10:00:{len(self.kept):02}",
            metadata=metadata,
            made=[],
            polls=self.polls,
            described=(size, made_of, volume_type),
        )
        self.kept[volume.id] = volume
        return self._seen(volume)

    def get(self, volume):
        self.calls.append("get")
        if volume not in self.kept:
            raise Refusal(404)
        return self._seen(self.kept[volume])

    def delete(self, volume):
        self.calls.append("delete")
        if volume not in self.kept:
            raise Refusal(404)
        if self.kept[volume].made:
            raise Refusal(400, "the volume has attachments")
        del self.kept[volume]

    def attach(self, volume, connector, server, mode):
        self.calls.append("attach")
        found = self.kept[volume]
        if found.status not in ("available", "in-use"):
            raise Refusal(400, f"the volume is {found.status}")
        info = {}
        if connector:
            iqn = f"iqn.cinder:{volume}"
            info = {"driver_volume_type": "iscsi", "target_iqn": iqn, "access_mode": mode}
        one = SimpleNamespace(
            id=f"a{next(self.numbers)}", server=server, status="reserved", connection_info=info
        )
        found.made.append(one)
        found.status = "reserved"
        return {"id": one.id, "connection_info": info}

    def complete(self, attachment):
        self.calls.append("complete")
        volume, one = self._of(attachment)
        one.status = "attached"
        volume.status = "in-use"

    def detach(self, attachment):
        self.calls.append("detach")
        volume, one = self._of(attachment)
        volume.made.remove(one)
        volume.status = "in-use" if volume.made else "available"

    def show_attachment(self, attachment):
        return self._of(attachment)[1]

    def list_attachments(self, search_opts):
        return self.kept[search_opts["volume_id"]].made

    def holders(self):
        """Who holds which volume."""
        return {one.id: sorted(made.server for made in one.made) for one in self.kept.values()}

    def _seen(self, volume):
        if volume.status == "creating":
            if volume.polls <= 0:
                volume.status = self.becomes
            volume.polls -= 1
        attached = [
            {"server_id": one.server, "attachment_id": one.id}
            for one in volume.made
            if one.status == "attached"
        ]
        return SimpleNamespace(**{**vars(volume), "attachments": attached})

    def _of(self, attachment):
        for volume in self.kept.values():
            for one in volume.made:
                if one.id == attachment:
                    return volume, one
        raise Refusal(404)


class FakeAgent:
    """The agent of a node.

    :ivar served: images that can be had; None for all
    :ivar broken: why images cannot be made
    :ivar length: bytes of an image
    :ivar device: how devices are called
    :ivar made: which disks came into being, and how long they were
    :ivar warmed: images that were asked for before their first VM
    :ivar peers: agents of other nodes, by name
    :ivar moves: whereto VMs are on their way
    :ivar waits: how far those are that move live
    :ivar failed: what a move that failed says; empty for others
    """

    def __init__(self):
        self.vms = {}
        self.served = None
        self.broken = {}
        self.length = 1
        self.device = "/dev/mapper/{vm}"
        self.made = []
        self.warmed = []
        self.reachable = True
        self.busy = set()
        self.peers = {}
        self.moves = {}
        self.waits = {}
        self.failed = {}
        self.room = {"free": 0, "promised": 0}
        self.loses_answers = False

    def create(self, vm, image="", *, original="", size=None, temporary=False):
        self._answer()
        if vm in self.vms:
            raise InstanceExists(vm)
        if original:
            begun = self.show(original)
            image, size = begun["image"], begun["size"]
        if self.served is not None and image not in self.served:
            raise ImageUnknown(image)
        self.vms[vm] = {
            "vm": vm,
            "image": image,
            "state": "ready",
            "device": self.device.format(vm=vm, image=image),
            "size": size or self.length,
            "temporary": temporary,
        }
        self.made.append((vm, image, self.vms[vm]["size"]))
        if self.loses_answers:
            raise AgentUnreachable("timed out")
        return self.vms[vm]

    def show(self, vm):
        self._answer()
        if vm not in self.vms:
            raise InstanceUnknown(vm)
        return self.vms[vm]

    def resize(self, vm, size):
        if size < self.show(vm)["size"]:
            raise InstanceSize(vm)
        self.vms[vm]["size"] = size

    def await_image(self, image, show=None, *, patience=0, pause=None):
        self._answer()
        if image in self.broken:
            raise ImportFailed(self.broken[image])
        if self.served is not None and image not in self.served:
            raise ImageUnknown(image)
        return {"image": image, "state": "known", "size": self.length}

    def images(self):
        return [{"image": image} for image in self.warmed]

    def warm(self, image):
        self.warmed.append(image)

    def destroy(self, vm):
        if self.show(vm)["state"] in ("leaving", "arriving"):
            raise MoveInProgress(vm)
        if vm in self.busy:
            raise DeviceBusy(vm)
        del self.vms[vm]

    def list(self):
        self._answer()
        return list(self.vms.values())

    def within(self, seconds):
        return self

    def space(self):
        self._answer()
        return self.room

    def migrate(self, vm, host, live=False):
        if host not in self.peers:
            raise PeerUnknown(host)
        if vm in self.peers[host].vms:
            raise InstanceExists(vm)
        self.show(vm)["state"] = "leaving"
        self.moves[vm] = host
        if live:
            self.peers[host].vms[vm] = self.vms[vm] | {"state": "arriving"}
            self.waits[vm] = "sending"

    def move(self, vm):
        self._answer()
        if vm not in self.moves:
            raise MoveUnknown(vm)
        return {"vm": vm, "host": self.moves[vm], "state": self.waits[vm]} | self.failed

    def finish_move(self, vm):
        self.move(vm)
        self.waits[vm] = "told"

    def await_move(self, vm, show=lambda move: None, ready=False):
        self._answer()
        if vm not in self.moves:
            raise MoveUnknown(vm)
        show({"vm": vm})
        if ready and self.waits[vm] == "ready":
            return self.move(vm)
        self.peers[self.moves.pop(vm)].vms[vm] = self.vms.pop(vm) | {"state": "ready"}
        return {"vm": vm, "state": "handed"}

    def cancel_move(self, vm):
        if self.show(vm)["state"] == "handed":
            raise MoveHanded(vm)
        host = self.moves.pop(vm, None)
        if host in self.peers:
            self.peers[host].vms.pop(vm, None)
        self.vms[vm]["state"] = "ready"

    def _answer(self):
        if not self.reachable:
            raise AgentUnreachable("no answer")


class FakeTime:
    """A clock that only pauses move, and what happens meanwhile.

    :ivar then: called at each pause
    """

    def __init__(self):
        self.seconds = 0.0
        self.then = lambda: None

    def now(self):
        return self.seconds

    def pause(self, seconds):
        self.seconds += seconds
        self.then()
