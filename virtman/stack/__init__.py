"""Which devices exist, and how they are made."""
