"""What this node's users may ask: the local API, and its client."""
