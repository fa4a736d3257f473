"""Volt decides where each host hangs in each image's attach trees."""
