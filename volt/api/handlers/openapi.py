"""How this API describes itself."""

from werkzeug import Request

from volt.api import openapi
from volt.api.handlers import Answer, Service


def show(service: Service, request: Request) -> Answer:
    """Show this API in the form of OpenAPI."""
    return openapi.document()
