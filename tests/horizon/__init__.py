"""Tests of the Horizon plug-in: a real Horizon, a real Volt and a real browser."""
