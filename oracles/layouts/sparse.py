"""Original hub layouts: sparse attention with an indexer."""
