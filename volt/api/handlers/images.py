"""How images and their trees answer."""

import hashlib
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from flask import Response, jsonify, request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service, page_of

COUNTERS: Final = frozenset({"sent", "hits", "misses", "silent"})


def create(service: Service) -> ResponseReturnValue:
    """Store an image."""
    new = parsing.image(request.get_data())
    image, is_new = service.images.create(new, datetime.now(UTC))
    return vars(image), 201 if is_new else 200


def index(service: Service) -> ResponseReturnValue:
    """List images by name."""
    page = parsing.page(request.args)
    images = service.images.index(page.marker, page.limit + 1)
    return page_of("images", images, page, "name")


def show(service: Service, image: str) -> ResponseReturnValue:
    """Show an image."""
    return vars(service.images.show(image))


def hashes(service: Service, image: str) -> ResponseReturnValue:
    """Show the image's hashes above the leaves."""
    content = service.images.upper_hashes(image)
    return Response(content, content_type="application/octet-stream")


def basis(service: Service, image: str) -> ResponseReturnValue:
    """Show what the image has in common with others."""
    content = service.images.basis(image)
    return Response(content, content_type="application/octet-stream")


def delete(service: Service, image: str) -> ResponseReturnValue:
    """Forget an image that no host uses."""
    service.images.delete(image)
    return "", 204


def withdraw(service: Service, image: str) -> ResponseReturnValue:
    """Have the image's source go; forget an image that no host needs."""
    left = service.images.withdraw(image, parsing.is_forced(request.args))
    return ("", 204) if left is None else vars(left)


def keep(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Store a layer that a host keeps."""
    new = parsing.kept_layer(request.get_data(), image, host)
    found, is_new = service.images.create(new, datetime.now(UTC))
    return vars(found), 201 if is_new else 200


def drop(service: Service, image: str, host: str) -> ResponseReturnValue:
    """Forget a layer that a host keeps, or that the host does."""
    if not parsing.is_elsewhere(request.args):
        service.images.delete(image, host)
        return "", 204
    left = service.images.withdraw(image, maker=host)
    return ("", 204) if left is None else vars(left)


def rotate(service: Service, image: str) -> ResponseReturnValue:
    """Give the image's hosts another secret for each other."""
    service.images.rotate(image)
    return "", 204


def hydrate(service: Service, image: str) -> ResponseReturnValue:
    """Have hosts copy all of the image some time after it came to them."""
    return vars(service.images.hydrate(image, parsing.hydration(request.get_data())))


def dehydrate(service: Service, image: str) -> ResponseReturnValue:
    """Have no more hosts copy all of the image."""
    service.images.hydrate(image, None)
    return "", 204


def copies(service: Service, image: str) -> ResponseReturnValue:
    """Show which hosts have, make or shall make a copy of all of the image."""
    return {"copies": service.copies.index(image)}


def rehome(service: Service, image: str) -> ResponseReturnValue:
    """Have a host that has all of the image stand for its source."""
    return vars(service.images.rehome(image, parsing.home(request.get_data())))


def parents(service: Service, image: str) -> ResponseReturnValue:
    """Show whom a host could be given as a parent."""
    host, limit = parsing.candidates(request.args)
    found = service.images.parents(image, host, limit)
    return {"parents": found}


def trees(service: Service, image: str) -> ResponseReturnValue:
    """Show the image's trees.

    Every heartbeat changes the counters in them. The ETag is weak, as it leaves these out:
    it tells whether the trees and the conditions of their hosts are what they were.
    """
    content = asdict(service.images.trees(image))
    etag = _digest(content)
    if request.if_none_match.contains_weak(etag):
        response = Response(status=304)
    else:
        response = jsonify(content)
    response.set_etag(etag, weak=True)
    return response


def _digest(trees: dict[str, Any]) -> str:
    kept = [
        [value for name, value in node.items() if name not in COUNTERS]
        for tree in trees["trees"]
        for node in tree["nodes"]
    ]
    return hashlib.sha256(repr((trees["generation"], kept)).encode()).hexdigest()[:32]
