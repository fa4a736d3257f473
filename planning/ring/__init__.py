"""A ring of hosts that own parts of an image, beside trees (ACStor)."""
