"""Programs whose reads are recorded, in an image of their own: run by its Python, not by ours."""
