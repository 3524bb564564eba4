"""Graphs. `BUILDERS` names the class that runs each kind of spec; the decoder looks specs up by their type's name."""

BUILDERS: dict[str, str] = {
    "AttentionSpec": "engine.graph.attention:Attention",
    "LayerSpec": "engine.graph.layers:Layer",
    "LinearSpec": "engine.graph.layers:LinearMixer",
    "MlpSpec": "engine.graph.mlp:Mlp",
    "MoeSpec": "engine.graph.experts:Moe",
    "StemSpec": "engine.graph.stem:Stem",
}
