"""Volt's commands."""
