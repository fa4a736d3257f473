"""What is asked of Volt."""
