"""What joins VirtMan to OpenStack; neither the agent nor Volt needs it.

It imports no nova: nova_patches call ``disks``, and hand it a client of Cinder.
"""
