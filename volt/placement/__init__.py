"""Where hosts hang in the trees of an image. Pure."""
