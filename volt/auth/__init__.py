"""Who asks, what they may ask, and how often."""
