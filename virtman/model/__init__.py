"""What is true without I/O: plans, names, chains, hash trees. Pure."""
