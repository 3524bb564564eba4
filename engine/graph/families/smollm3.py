"""smollm3: llama without rope in every fourth layer; sliding layers mask their window, and keep every key."""

from dataclasses import replace

from engine.graph.families import llama
from engine.graph.families.common import ArchSpec, Config


def spec(config: Config) -> ArchSpec:
    layers = llama.layers(config, cache="dense")
    interval = config.positive("no_rope_layer_interval", 4)
    turns = config.each("no_rope_layers", [(i + 1) % interval != 0 for i in range(len(layers))])
    still = [replace(layer, attention=replace(layer.attention, rope=None)) for layer in layers]
    return config.arch([layer if turn else s for layer, s, turn in zip(layers, still, turns, strict=True)])
