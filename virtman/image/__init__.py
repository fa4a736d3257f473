"""How one image lives on this node."""
