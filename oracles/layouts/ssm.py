"""Original hub layouts: state-space models and their hybrids."""
