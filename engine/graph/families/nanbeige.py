"""nanbeige: llama whose layers run several times, each pass with caches of its own and, by default, the final norm."""

from engine.errors import NotBuilt
from engine.graph.families import llama
from engine.graph.families.common import ArchSpec, Config


def spec(config: Config) -> ArchSpec:
    for key in ("enable_double_loop_split", "loop_share_kv", "enable_depth_attention"):
        if config.flag(key, False):
            raise NotBuilt(f"nanbeige with {key}", "mlx-lm refuses it too")
    loops, losses = config.positive("num_loops", 1), config.holding("loop_loss_weights", list, [])
    loops = len(losses) + 1 if losses else loops  # a loss weight for each pass but the last
    loop_norm = not config.flag("skip_loop_final_norm", False)
    return llama.needing_kv_heads(config, loops=loops, loop_norm=loop_norm, untie=False)
