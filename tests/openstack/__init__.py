"""Servers in a real OpenStack on the test bed.

Not run by default: ``tools/test.sh openstack``.
"""
