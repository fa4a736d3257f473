"""What Volt counts, for Prometheus."""

from flask import Response
from prometheus_client import CONTENT_TYPE_LATEST

from volt import metrics
from volt.handlers import Answer, Service


def show(service: Service) -> Answer:
    """Show all metrics of this Volt."""
    figures = service.coordinator.figures()
    return Response(metrics.text(figures), content_type=CONTENT_TYPE_LATEST)
