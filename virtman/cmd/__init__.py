"""What can I type? The programs, and a file for each noun of ``virtman``."""
