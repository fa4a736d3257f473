"""One client over a line: what policies of prefetch are worth, tried on recorded runs."""
