"""What a process of Volt does beside serving."""
