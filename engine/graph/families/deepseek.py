"""deepseek: softmax routing by a bare matrix after some dense layers, scores as they are, shared experts."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, MlpSpec, MoeSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["deepseek"])
    attn = config.attention(head_dim=config.even_head_dim(), bias=config.flag("attention_bias"))
    dense: MlpSpec = config.mlp()
    sparse: MlpSpec | MoeSpec = dense
    if config.read("n_routed_experts", None) is not None:
        router = RouterSpec(raw=True, score="softmax")
        sparse = config.moe(experts="n_routed_experts", shared="n_shared_experts", router=router)
    first, every = config.count("first_k_dense_replace"), config.positive("moe_layer_freq")
    made = config.layers(attn, lambda i: sparse if i >= first and i % every == 0 else dense)
    return config.arch(made, tied=False, more_rules=stacked("mlp", "switch_mlp"))
