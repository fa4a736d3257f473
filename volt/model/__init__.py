"""What Volt speaks of. Pure."""
