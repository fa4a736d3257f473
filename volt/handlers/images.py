"""How images and their trees answer."""

from dataclasses import asdict
from datetime import UTC, datetime

from flask import request

from volt import schemas
from volt.handlers import Answer, Service


def create(service: Service) -> Answer:
    """Store an image."""
    new = schemas.image(request.get_data())
    image, is_new = service.coordinator.create_image(new, datetime.now(UTC))
    return asdict(image), 201 if is_new else 200


def index(service: Service) -> Answer:
    """List all images."""
    return {"images": [asdict(image) for image in service.coordinator.images()]}


def show(service: Service, image: str) -> Answer:
    """Show an image."""
    return asdict(service.coordinator.image(image))


def delete(service: Service, image: str) -> Answer:
    """Forget an image that no host uses."""
    service.coordinator.delete_image(image)
    return "", 204


def rotate(service: Service, image: str) -> Answer:
    """Give the image's hosts another secret for each other."""
    service.coordinator.rotate(image)
    return "", 204


def trees(service: Service, image: str) -> Answer:
    """Show the image's trees."""
    return asdict(service.coordinator.trees(image))
