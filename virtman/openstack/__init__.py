"""What joins VirtMan to OpenStack; neither the agent nor Volt needs it.

Nova is imported only by what it loads: the driver in nova-compute, ``weigher`` in nova-scheduler,
and ``volume_type`` in nova-api, which the patch of nova_patches calls.
"""
