"""What planning refuses: the message names the thing and what to do."""


class PlanningError(Exception):
    """Anything that is refused on purpose."""


class Invalid(PlanningError):
    """A figure that cannot be, such as a negative rate."""


class ExtraMissing(PlanningError):
    """A library of an extra of VirtMan that is not installed."""


def check(is_so: object, otherwise: str) -> None:
    """Raise Invalid with that message unless it is so."""
    if not is_so:
        raise Invalid(otherwise)
