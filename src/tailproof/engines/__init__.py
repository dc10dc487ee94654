"""Where candidates are made."""
