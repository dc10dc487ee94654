"""What makes a candidate out of a block."""
