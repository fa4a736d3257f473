"""Boots at once on hosts that nobody has, event by event."""
