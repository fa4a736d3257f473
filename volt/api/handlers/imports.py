"""How importers learn which images are wanted, and tell how far they are."""

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service


def index(service: Service) -> ResponseReturnValue:
    """List the images that hosts wait for."""
    return {"imports": service.imports.index()}


def show(service: Service, image: str) -> ResponseReturnValue:
    """Show how far an image is."""
    return vars(service.imports.show(image))


def tell(service: Service, image: str) -> ResponseReturnValue:
    """Keep how far an image is that an importer makes."""
    return vars(service.imports.tell(image, parsing.told(request.get_data())))


def retry(service: Service, image: str) -> ResponseReturnValue:
    """Have an image tried anew."""
    service.imports.retry(image)
    return "", 204
