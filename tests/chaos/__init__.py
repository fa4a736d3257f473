"""Chaos tests: Volt while it is being killed, a minute for each database."""
