"""The fault table: what a VM sees of each fault, and the checks of tools that know nothing of us.

Not run by default: ``tools/test.sh faults``.
"""
