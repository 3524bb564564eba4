"""nanbeige: llama whose layers run several times, each pass with caches of its own and, by default, the final norm."""

from engine.errors import NotBuilt
from engine.graph.families.common import Config
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    for key in ("enable_double_loop_split", "loop_share_kv", "enable_depth_attention"):
        if config.flag(key, False):
            raise NotBuilt(f"nanbeige with {key}", "mlx-lm refuses it too")
    flat = config.replaced(rope_traditional=False, num_key_value_heads=config.positive("num_key_value_heads"))
    attn = flat.attention(bias=config.flag("attention_bias", False))
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    loops, losses = config.positive("num_loops", 1), config.holding("loop_loss_weights", list, [])
    return config.arch(
        LayerSpec(attention=attn, mlp=feed, norms=config.pre_norms()),
        tied=config.flag("tie_word_embeddings", False),
        loops=len(losses) + 1 if losses else loops,  # a loss weight for each pass but the last
        loop_norm=not config.flag("skip_loop_final_norm", False),
        rules=(ROTARY,),
    )
