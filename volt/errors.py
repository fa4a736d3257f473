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
    """The request is well formed but does not fit the present state."""


class Unavailable(VoltError):
    """Volt cannot serve just now: try again."""


class Unauthenticated(VoltError):
    """The request does not prove who asks."""

    code = "volt.access.unauthenticated"


class Forbidden(VoltError):
    """Who asks is known but may not do this."""

    code = "volt.access.forbidden"


class TooFast(VoltError):
    """Who asks has asked too often; ``wait`` is the seconds until they may again."""

    code = "volt.access.too_fast"

    def __init__(self, wait: float) -> None:
        super().__init__(
            f"too many requests: wait {wait:.1f} s, or raise [api] rate or burst in Volt"
        )
        self.wait = wait


class RequestInvalid(Invalid):
    """A body that is not the JSON that the route takes."""

    code = "volt.request.invalid"


class NameInvalid(Invalid):
    """An image or host name that could not become part of an iSCSI name."""

    code = "volt.name.invalid"


class ImageSizeInvalid(Invalid):
    """A size that is not a positive number of whole sectors."""

    code = "volt.image.size"


class HashesInvalid(Invalid):
    """Hashes that cannot be those of an image of that size."""

    code = "volt.image.hashes"


class CertificateRequestInvalid(Invalid):
    """What should be a request for a certificate is none, or is for a weak key."""

    code = "volt.certificate.request"


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
    """The host's agent takes no calls of others: it has no certificate that is good."""

    code = "volt.peer.unknown"


class HashesUnknown(Unknown):
    """The image was registered without a hash tree."""

    code = "volt.image.no_hashes"


class HostUnknown(Unknown):
    """The host has no place in that image's trees."""

    code = "volt.host.unknown"


class ImageExists(Conflict):
    """The name is taken by an image with other content."""

    code = "volt.image.exists"


class ImageInUse(Conflict):
    """Hosts still hold places in the image's trees."""

    code = "volt.image.in_use"


class PlacementStale(Conflict):
    """The caller acts on a placement that has changed since."""

    code = "volt.placement.stale"


class HostPlaced(Conflict):
    """The host already has a place in the trees."""

    code = "volt.host.placed"


class ReportMismatch(Conflict):
    """A host reports somebody who is not its parent or standby."""

    code = "volt.report.mismatch"


class TooManyWaiting(Unavailable):
    """So many requests wait for news that one more would keep others from being served."""

    code = "volt.watch.full"


class DatabaseBusy(Unavailable):
    """Other writers held the database for longer than the busy timeout."""

    code = "volt.database.busy"


class DatabaseUnreachable(Unavailable):
    """The database server is down, or takes no more connections."""

    code = "volt.database.unreachable"


class DatabaseInvalid(VoltError):
    """The URL of the database is none that Volt can use."""

    code = "volt.database.url"


class KeystoneUnavailable(Unavailable):
    """Keystone did not say whose token it is."""

    code = "volt.access.keystone"


class TokenUnknown(Unknown):
    """No token has that name."""

    code = "volt.token.unknown"


class TokenInvalid(Invalid):
    """A token that would be of no use."""

    code = "volt.token.invalid"


class PolicyInvalid(VoltError):
    """The policy file cannot be used."""

    code = "volt.access.policy"


class SchemaOutdated(VoltError):
    """The database was not brought to the schema that this Volt needs."""

    code = "volt.database.schema"
