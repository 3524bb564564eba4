"""Packing dense models into few bits."""
