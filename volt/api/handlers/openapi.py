"""How this API describes itself."""

from typing import Final

from flask import current_app
from flask.typing import ResponseReturnValue

from volt.api.handlers import Service

DOCUMENT: Final = "volt.openapi"
"""Under which extension of the application its description is kept."""


def show(service: Service) -> ResponseReturnValue:
    """Show this API in the form of OpenAPI."""
    document: dict[str, object] = current_app.extensions[DOCUMENT]
    return document
