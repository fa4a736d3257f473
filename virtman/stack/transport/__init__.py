"""How blocks come from other hosts, and go to them."""
