"""Measurements of VirtMan: each drives public interfaces and prints what it found."""
