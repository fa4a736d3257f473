"""What joins VirtMan to OpenStack; neither the agent nor Volt needs it.

Only ``weigher`` imports nova, which loads it: nova_patches call the others, and hand them a
client of Cinder.
"""
