"""The verbs of a node: VMs, images, cached volumes, and the check of all of them."""
