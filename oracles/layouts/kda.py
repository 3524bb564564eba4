"""Original hub layouts: delta hybrids with a gate per channel (KDA)."""
