"""nanbeige: llama whose layers run several times, each pass with caches of its own and, by default, the final norm."""

from engine.errors import NotBuilt
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, LayerSpec

_UNKNOWN_TO_THE_ORACLE = ("enable_double_loop_split", "loop_share_kv", "enable_depth_attention")


def spec(config: Config) -> ArchSpec:
    for key in _UNKNOWN_TO_THE_ORACLE:
        if config.flag(key, False):
            raise NotBuilt(f"nanbeige with {key}", "mlx-lm refuses it too")
    bias = config.flag("attention_bias", False)
    flat = config.replaced(rope_traditional=False, num_key_value_heads=config.positive("num_key_value_heads"))
    layer = LayerSpec(
        attention=attention(flat, qkv_bias=bias, out_bias=bias),
        mlp=mlp(config, bias=config.flag("mlp_bias", False)),
        norms=pre_norms(config),
    )
    weights = config.read("loop_loss_weights", None)
    return arch(
        config,
        layer,
        tied=config.flag("tie_word_embeddings", False),
        loops=len(weights) + 1 if weights else config.positive("num_loops", 1),
        loop_norm=not config.flag("skip_loop_final_norm", False),
        rules=(ROTARY,),
    )
