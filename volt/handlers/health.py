"""Whether this Volt serves requests."""

from volt.handlers import Answer, Service


def show(service: Service) -> Answer:
    """Answer as long as the process does."""
    return {"status": "ok"}
