"""What can go wrong, as users and programs see it: a stable code and what to do.

``status`` is the HTTP status under which the local API reports the error.
"""

from __future__ import annotations


class VirtmanError(Exception):
    """Base of every error that VirtMan raises on purpose."""

    code = "virtman.error"
    status = 500


class InvalidName(VirtmanError):
    """A name that does not fit into device or iSCSI names."""

    code = "virtman.name.invalid"
    status = 400


class InvalidRequest(VirtmanError):
    """A request whose body or path is not understood."""

    code = "virtman.request.invalid"
    status = 400


class InvalidSize(VirtmanError):
    """A size that no block device can have."""

    code = "virtman.image.size"
    status = 400


class ImportFailed(VirtmanError):
    """An image that is wanted could not be made."""

    code = "virtman.image.import_failed"
    status = 502


class ImageUnknown(VirtmanError):
    """Volt has no image of this name."""

    code = "virtman.image.unknown"
    status = 404


class ImageMismatch(VirtmanError):
    """A parent does not serve the image that Volt describes."""

    code = "virtman.image.mismatch"
    status = 502


class ImageRemade(VirtmanError):
    """The image was deleted, and another one has its name, which does not fit the VM's data."""

    code = "virtman.image.remade"
    status = 409


class BasisInvalid(VirtmanError):
    """What should tell on which images one is based does not, or is damaged."""

    code = "virtman.basis.invalid"
    status = 400


class CopyUnknown(VirtmanError):
    """There is no copy of this image on this node, nor is one made."""

    code = "virtman.copy.unknown"
    status = 404


class CopyWrong(VirtmanError):
    """A disk does not give back what was written of the copy of an image."""

    code = "virtman.copy.wrong"
    status = 500


class InstanceExists(VirtmanError):
    """A VM of this name already has a device."""

    code = "virtman.instance.exists"
    status = 409


class InstanceUnknown(VirtmanError):
    """No VM of this name on this node."""

    code = "virtman.instance.unknown"
    status = 404


class InstanceSize(VirtmanError):
    """A disk that would be smaller than its image or snapshot, or than it was."""

    code = "virtman.instance.size"
    status = 400


class InstanceNotServed(VirtmanError):
    """The VM has no device yet: the agent has not created it again."""

    code = "virtman.instance.not_served"
    status = 503


class SnapshotExists(VirtmanError):
    """A snapshot of this name exists already."""

    code = "virtman.snapshot.exists"
    status = 409


class SnapshotUnknown(VirtmanError):
    """No snapshot of this name on this node."""

    code = "virtman.snapshot.unknown"
    status = 404


class SnapshotMismatch(VirtmanError):
    """The snapshot belongs to another image or another VM."""

    code = "virtman.snapshot.mismatch"
    status = 409


class DeviceBusy(VirtmanError):
    """A process still has the device open."""

    code = "virtman.device.busy"
    status = 409


class DevicePending(VirtmanError):
    """I/O through the device, or to the disk below, does not end: its table is not swapped."""

    code = "virtman.device.pending"
    status = 503


class NoSpace(VirtmanError):
    """There is no space for the exception store."""

    code = "virtman.store.no_space"
    status = 507


class StoreUnusable(VirtmanError):
    """A device named for an exception store is in use, too small, or not the right one."""

    code = "virtman.store.unusable"
    status = 409


class StoreInvalid(VirtmanError):
    """The kernel gave up an exception store: its data is lost."""

    code = "virtman.store.invalid"
    status = 500


class ModulesMissing(VirtmanError):
    """The kernel lacks modules that the devices need."""

    code = "virtman.kernel.modules_missing"
    status = 503


class ParentUnreachable(VirtmanError):
    """A parent or the source does not answer, or does not serve the image.

    :ivar host: its name
    """

    code = "virtman.parent.unreachable"
    status = 504

    def __init__(self, message: str, host: str = "") -> None:
        super().__init__(message)
        self.host = host


class CoordinatorUnreachable(VirtmanError):
    """Volt does not answer."""

    code = "virtman.volt.unreachable"
    status = 503


class CoordinatorRefused(VirtmanError):
    """Volt answered with an error that the agent did not expect."""

    code = "virtman.volt.refused"
    status = 502


class ImageInUse(CoordinatorRefused):
    """Hosts, disks or layers need an image that is to be forgotten."""

    code = "virtman.image.in_use"
    status = 409


class TokenUnreadable(VirtmanError):
    """The file with this host's token cannot be read, or holds no token."""

    code = "virtman.volt.token"
    status = 503


class Unauthenticated(VirtmanError):
    """Volt requires a token and does not accept ours."""

    code = "virtman.volt.unauthenticated"
    status = 502


class Forbidden(VirtmanError):
    """Volt knows our token and does not allow this."""

    code = "virtman.volt.forbidden"
    status = 502


class TooFast(VirtmanError):
    """Volt asks for fewer requests, for longer than we wait."""

    code = "virtman.volt.too_fast"
    status = 503


class PlacementStale(VirtmanError):
    """Volt placed this host anew meanwhile: fetch the placement again."""

    code = "virtman.placement.stale"
    status = 409


class PlotMissing(VirtmanError):
    """The library that draws is not installed."""

    code = "virtman.plot.missing"
    status = 501


class ProfileForeign(VirtmanError):
    """The boot profile is of another image, or of pieces of another size."""

    code = "virtman.profile.foreign"
    status = 409


class ProfileInvalid(VirtmanError):
    """What should be a boot profile is none, or is damaged."""

    code = "virtman.profile.invalid"
    status = 400


class ProfileStale(VirtmanError):
    """Somebody else stored the boot profile meanwhile: fetch it and merge again."""

    code = "virtman.profile.stale"
    status = 409


class RecordingUnknown(VirtmanError):
    """Nothing is, or was, recorded of this VM."""

    code = "virtman.recording.unknown"
    status = 404


class RecordingInProgress(VirtmanError):
    """A workload is being recorded in this image already."""

    code = "virtman.recording.busy"
    status = 409


class ProfileUnbound(VirtmanError):
    """The image has no hash tree, so nothing would bind a boot profile to its data."""

    code = "virtman.profile.unbound"
    status = 409


class ProfileUnknown(VirtmanError):
    """The image has no such boot profile."""

    code = "virtman.profile.unknown"
    status = 404


class PeersOff(VirtmanError):
    """This agent does not listen to other agents, and so cannot call them."""

    code = "virtman.peer.off"
    status = 409


class PeerUnknown(VirtmanError):
    """Volt knows no agent of this host that listens."""

    code = "virtman.peer.unknown"
    status = 404


class PeerUnreachable(VirtmanError):
    """Another host's agent does not answer."""

    code = "virtman.peer.unreachable"
    status = 504


class PeerUntrusted(VirtmanError):
    """The other side of a call is not the host that it should be."""

    code = "virtman.peer.untrusted"
    status = 403


class CheckpointsUnknown(VirtmanError):
    """No checkpoints are made of this VM."""

    code = "virtman.checkpoint.unknown"
    status = 404


class LayerExists(VirtmanError):
    """There is an image of this name."""

    code = "virtman.layer.exists"
    status = 409


class LayerUnknown(VirtmanError):
    """This node has made no layer of this name."""

    code = "virtman.layer.unknown"
    status = 404


class LayerComing(VirtmanError):
    """A layer is not there yet: it is being made, or another command brings it."""

    code = "virtman.layer.coming"
    status = 409


class LayerWrong(VirtmanError):
    """What a node sent of a layer is not what Volt knows."""

    code = "virtman.layer.wrong"
    status = 502


class LayerFileInvalid(VirtmanError):
    """A file is none of a layer that was exported, or was changed since."""

    code = "virtman.layer.file"
    status = 400


class LayersTooMany(VirtmanError):
    """The layer would lie on as many as there may be."""

    code = "virtman.layer.depth"
    status = 409


class CommitCancelled(VirtmanError):
    """The commit was given up."""

    code = "virtman.layer.cancelled"
    status = 409


class SuspendedInvalid(VirtmanError):
    """A VM, or a record of one, has hardware with which it cannot be suspended or resumed."""

    code = "virtman.suspended.invalid"
    status = 409


class SuspendedUnknown(VirtmanError):
    """The image is no suspended image."""

    code = "virtman.suspended.unknown"
    status = 404


class SuspendedForeign(VirtmanError):
    """The suspended image is of another project: no others' VMs have its memory."""

    code = "virtman.suspended.project"
    status = 403


class NicsAttached(VirtmanError):
    """The VM has network cards, which all that are resumed would have too."""

    code = "virtman.suspended.nics"
    status = 409


class SessionsOpen(VirtmanError):
    """Somebody is logged in to the VM, and would be in all that are resumed."""

    code = "virtman.suspended.sessions"
    status = 409


class HostUnfit(VirtmanError):
    """This host has not what a suspended VM needs to go on."""

    code = "virtman.suspended.host"
    status = 409


class QemuFailed(VirtmanError):
    """QEMU does not answer, or did not do what it was asked."""

    code = "virtman.qemu.failed"
    status = 502


class MoveInProgress(VirtmanError):
    """The VM is moving from or to this node."""

    code = "virtman.move.busy"
    status = 409


class MoveUnknown(VirtmanError):
    """No such VM is moving."""

    code = "virtman.move.unknown"
    status = 404


class MoveHanded(VirtmanError):
    """The destination owns the VM's data, or may own it: it is too late to cancel."""

    code = "virtman.move.handed"
    status = 409


class MoveStale(VirtmanError):
    """The VM was offered again meanwhile, or the destination has restarted: offer again."""

    code = "virtman.move.stale"
    status = 409


class MoveGarbled(VirtmanError):
    """Data arrived damaged: send it again."""

    code = "virtman.move.garbled"
    status = 400


class MoveCancelled(VirtmanError):
    """The move was cancelled."""

    code = "virtman.move.cancelled"
    status = 409


class ImageDiffers(VirtmanError):
    """The two hosts have different images of one name."""

    code = "virtman.move.image_differs"
    status = 409


class VersionDiffers(VirtmanError):
    """The two agents have versions that do not understand each other."""

    code = "virtman.move.version"
    status = 409


class AgentUnreachable(VirtmanError):
    """The local agent does not answer."""

    code = "virtman.agent.unreachable"
    status = 503


class CacheUnsupported(VirtmanError):
    """The cache driver cannot do this."""

    code = "virtman.cache.unsupported"
    status = 501


class VolumeUnusable(VirtmanError):
    """This device cannot be cached, or not in this mode."""

    code = "virtman.volume.unusable"
    status = 409


class VolumeUnknown(VirtmanError):
    """This device has no cache."""

    code = "virtman.volume.unknown"
    status = 404


class KernelFailure(VirtmanError):
    """A root verb failed for a reason that has no name of its own."""

    code = "virtman.kernel.failure"
    status = 500


def from_code(code: str, message: str) -> VirtmanError:
    """Return the error that has a code."""
    return _BY_CODE.get(code, VirtmanError)(message)


_BY_CODE = {
    kind.code: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, VirtmanError)
}
