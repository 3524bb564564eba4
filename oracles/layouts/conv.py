"""Original hub layouts: short convolutions, linear attention and other recurrences."""
