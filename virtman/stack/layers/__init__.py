"""One kind of device a module."""
