"""The test bed: whole hosts with kernels of their own, on one machine."""

from lab.cluster import Bed
from lab.node import Node
from lab.state import Disk

__all__ = ["Bed", "Disk", "Node"]
