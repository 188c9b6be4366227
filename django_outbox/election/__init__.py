"""Fast NELI in plain Python."""
