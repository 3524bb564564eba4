"""Original hub layouts: state-space models and their hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

Weights = dict[str, mx.array]


def hub(weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> Weights:
    """Filters as [channels, 1, width]."""
    return {k: v.moveaxis(1, 2) if "conv1d.weight" in k else v for k, v in weights.items()}
