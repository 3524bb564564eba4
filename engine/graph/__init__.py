"""Graphs. `BUILDERS` names the class that runs each kind of spec; the decoder looks specs up by their type's name."""

BUILDERS: dict[str, str] = {
    "AltUpLayerSpec": "engine.graph.altup:AltUpLayer",
    "AttentionSpec": "engine.graph.attention:Attention",
    "BlendedMoeSpec": "engine.graph.blended_moe:BlendedMoe",
    "BlockSparseSpec": "engine.graph.block_sparse:BlockSparse",
    "CyclicSpec": "engine.graph.cyclic:Cyclic",
    "DualMlpSpec": "engine.graph.dual_mlp:DualMlp",
    "ExpertListSpec": "engine.graph.expert_list:ExpertList",
    "LayerSpec": "engine.graph.layers:Layer",
    "LinearSpec": "engine.graph.layers:LinearMixer",
    "MlpSpec": "engine.graph.mlp:Mlp",
    "MoeSpec": "engine.graph.experts:Moe",
    "PerLayerStemSpec": "engine.graph.per_layer:PerLayerStem",
    "SparseMixerSpec": "engine.graph.sparsemixer:SparseMixer",
    "StackedStemSpec": "engine.graph.altup:StackedStem",
    "StemSpec": "engine.graph.stem:Stem",
    "TailedLayerSpec": "engine.graph.per_layer:TailedLayer",
    "TwoScopesSpec": "engine.graph.two_scopes:TwoScopes",
    "UnstackSpec": "engine.graph.altup:Unstack",
    "XieluMlpSpec": "engine.graph.xielu:XieluMlp",
}
