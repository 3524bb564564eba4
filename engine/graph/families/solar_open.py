"""solar_open: glm4_moe with defaults of its own."""

from engine.graph.families.glm4_moe import spec as spec
