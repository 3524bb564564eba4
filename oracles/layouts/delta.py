"""Original hub layouts: gated delta hybrids."""
