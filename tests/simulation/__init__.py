"""The simulator at full size, beside what is known otherwise; they take minutes."""
