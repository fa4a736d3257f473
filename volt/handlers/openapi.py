"""How this API describes itself."""

from volt import openapi
from volt.handlers import Answer, Service


def show(service: Service) -> Answer:
    """Show this API in the form of OpenAPI."""
    return openapi.document()
