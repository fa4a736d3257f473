"""A real OpenStack on a bed: its services beside the nodes, storage and compute on them."""
