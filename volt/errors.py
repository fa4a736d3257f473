"""What can go wrong in Volt: one class and one stable code per cause.

The kinds say who has to act; ``volt.api.app`` alone turns a kind into an HTTP status.
"""


class VoltError(Exception):
    """Anything Volt refuses; ``code`` is stable, the message says what to do."""

    code = "volt.internal"


class Invalid(VoltError):
    """The request itself is wrong: change it."""


class Unknown(VoltError):
    """The thing asked for is not there."""


class Conflict(VoltError):
    """The request is well formed but does not fit the current state."""


class ConditionFailed(VoltError):
    """What the request says must be there is not: read again, then decide."""


class Unavailable(VoltError):
    """Volt cannot serve just now: try again."""


class Unauthenticated(VoltError):
    """The request has no valid token."""

    code = "volt.access.unauthenticated"


class Forbidden(VoltError):
    """The client is known but may not do this."""

    code = "volt.access.forbidden"


class TooFast(VoltError):
    """The client sends too many requests; ``wait`` is the seconds until it may send again."""

    code = "volt.access.too_fast"

    def __init__(self, wait: float) -> None:
        super().__init__(
            f"too many requests: wait {wait:.1f} s, or raise [api] rate or burst in Volt"
        )
        self.wait = wait


class RequestInvalid(Invalid):
    """A body that does not fit the route."""

    code = "volt.request.invalid"


class NameInvalid(Invalid):
    """A name that breaks the rule for names, which iSCSI names set."""

    code = "volt.name.invalid"


class ImageSizeInvalid(Invalid):
    """A size that is not a positive number of whole sectors."""

    code = "volt.image.size"


class HashesInvalid(Invalid):
    """Hashes that do not fit an image of that size."""

    code = "volt.image.hashes"


class BasisInvalid(Invalid):
    """What should tell what an image has in common with others does not, or is damaged."""

    code = "volt.basis.invalid"


class CertificateRequestInvalid(Invalid):
    """The body is not a certificate request, or its key is of a wrong kind."""

    code = "volt.certificate.request"


class ProfileInvalid(Invalid):
    """The bytes are no boot profile, or a damaged one."""

    code = "volt.profile.invalid"


class ShapeInvalid(Invalid):
    """Stripes and fan-out for which no trees exist."""

    code = "volt.image.shape"


class SourceUnreachable(Invalid):
    """The source portal does not answer."""

    code = "volt.image.source_unreachable"


class ImageUnknown(Unknown):
    """No image has that name."""

    code = "volt.image.unknown"


class ListenerUnknown(Unknown):
    """The host's agent does not listen to other agents: it has no valid certificate."""

    code = "volt.peer.unknown"


class HashesUnknown(Unknown):
    """The image was registered without a hash tree."""

    code = "volt.image.no_hashes"


class BasisUnknown(Unknown):
    """The image is based on no other."""

    code = "volt.basis.unknown"


class ProfileUnknown(Unknown):
    """The workload has no profile of the image, or not that revision."""

    code = "volt.profile.unknown"


class WarmupUnknown(Unknown):
    """The host was not asked to warm that image."""

    code = "volt.warmup.unknown"


class HostUnknown(Unknown):
    """The host has no place in that image's trees."""

    code = "volt.host.unknown"


class ImportUnknown(Unknown):
    """No host waits for that image, and nobody makes it."""

    code = "volt.import.unknown"


class ImportTaken(Conflict):
    """Another importer makes that image."""

    code = "volt.import.taken"


class ImageExists(Conflict):
    """An image with other content has this name."""

    code = "volt.image.exists"


class ImageNotWhole(Conflict):
    """The host has no whole copy of that image."""

    code = "volt.image.not_whole"


class ImageLastCopy(Conflict):
    """Hosts need the image, and none has all of it: its source is the only one that does."""

    code = "volt.image.last_copy"


class BasisForeign(Conflict):
    """The basis is of another image, or names one that is another by now, or goes in a circle."""

    code = "volt.basis.foreign"


class LayersTooMany(Conflict):
    """The layer would lie on as many as there may be."""

    code = "volt.layer.depth"


class NotMaker(Conflict):
    """A host asks for what only the maker of a layer may ask for."""

    code = "volt.layer.maker"


class ImageInUse(Conflict):
    """Hosts still have places in the image's trees, disks that need it, or layers lie on it."""

    code = "volt.image.in_use"


class HoldLive(Conflict):
    """The host that needs the image has not expired."""

    code = "volt.hold.live"


class PlacementStale(Conflict):
    """The caller acts on a placement that has changed since."""

    code = "volt.placement.stale"


class HostPlaced(Conflict):
    """The host already has a place in the trees."""

    code = "volt.host.placed"


class ReportMismatch(Conflict):
    """A host reports a host that is not its parent or standby."""

    code = "volt.report.mismatch"


class ProfileForeign(Conflict):
    """The profile is for another image: its root hash is not the image's."""

    code = "volt.profile.foreign"


class ProfileUnbound(Conflict):
    """The image has no hash tree, whose root hash would bind a profile to it."""

    code = "volt.profile.unbound"


class TooManyProfiles(Conflict):
    """The image has profiles of as many workloads as it may have."""

    code = "volt.profile.too_many"


class ProfileStale(ConditionFailed):
    """The newest profile is not the one that the request names."""

    code = "volt.profile.stale"


class TooManyWaiting(Unavailable):
    """Too many requests wait for news: one more would block others."""

    code = "volt.watch.full"


class DatabaseBusy(Unavailable):
    """Other writers held the database for longer than the busy timeout."""

    code = "volt.database.busy"


class DatabaseUnreachable(Unavailable):
    """The database server is down, accepts no more connections, or does not let Volt in."""

    code = "volt.database.unreachable"


class DatabaseInvalid(VoltError):
    """Volt cannot use the URL of the database."""

    code = "volt.database.url"


class KeystoneUnavailable(Unavailable):
    """Keystone gave no valid answer about a token."""

    code = "volt.access.keystone"


class TokenUnknown(Unknown):
    """No token has that name."""

    code = "volt.token.unknown"


class TokenInvalid(Invalid):
    """A token that nobody could use."""

    code = "volt.token.invalid"


class PolicyInvalid(VoltError):
    """The policy file cannot be used."""

    code = "volt.access.policy"


class SchemaOutdated(VoltError):
    """The database has another schema than this Volt needs."""

    code = "volt.database.schema"
