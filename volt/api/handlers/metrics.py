"""What Volt counts, for Prometheus."""

from flask import Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST

from volt import metrics
from volt.api.handlers import Service


def show(service: Service) -> ResponseReturnValue:
    """Show all metrics of this Volt."""
    figures = service.images.figures()
    return Response(metrics.text(figures), content_type=CONTENT_TYPE_LATEST)
