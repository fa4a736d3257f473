"""How hosts are asked to warm an image, and tell how far they are."""

from datetime import UTC, datetime

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service


def ask(service: Service, image: str) -> ResponseReturnValue:
    """Ask hosts to warm the image."""
    chosen, workload = parsing.chosen(request.get_data())
    return {"warmups": service.warmups.ask(image, workload, chosen, datetime.now(UTC))}, 202


def index(service: Service, image: str) -> ResponseReturnValue:
    """Show what was asked, and how far each host is."""
    return {"warmups": service.warmups.index(image)}


def tell(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Keep how far a host is."""
    service.warmups.tell(image, host, parsing.progress(request.get_data()))
    return "", 204
