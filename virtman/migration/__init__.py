"""How a VM changes hosts: the source's side, the destination's side, and calls between them."""
