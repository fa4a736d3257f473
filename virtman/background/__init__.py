"""What runs beside the verbs."""
