"""What boots at once will take on hosts, switches and links that nobody has bought yet."""
