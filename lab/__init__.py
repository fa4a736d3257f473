"""The test bed: whole hosts with kernels of their own, on one machine."""
