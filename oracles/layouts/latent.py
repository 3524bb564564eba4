"""Original hub layouts: latent attention (MLA)."""
