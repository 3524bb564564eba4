"""mistral4: latent attention whose queries grow with their position, joined keys in prefill, softmax routing."""

from engine.graph.families.common import (
    ArchSpec,
    Config,
    Drop,
    Float8Blocks,
    Rename,
    RopeSpec,
    RouterSpec,
    Split,
    halves,
    stacked,
)
from engine.graph.families.deepseek_v3 import latent, mixture
from engine.graph.latent import SplitHeads
from engine.graph.spec import QueryScale


def spec(config: Config) -> ArchSpec:
    turning = config.inner("rope_parameters")
    kind = turning.get("type") or turning.get("rope_type", "default")
    rope = RopeSpec(
        dims=config.positive("qk_rope_head_dim"),
        base=turning.number("rope_theta", 100000.0),
        traditional=config.flag("rope_interleave", True),
        scaling={} if kind == "default" else turning,
        max_positions=config.positive("max_position_embeddings"),
    )
    beta, length = turning.number("llama_4_scaling_beta"), turning.number("original_max_position_embeddings")
    router = RouterSpec(
        score="softmax_float32",
        normalise=config.to_sum(),
        eps=1e-20,
        scale=config.number("routed_scaling_factor"),
        compiled=True,
        **config.group_limits(),
    )
    attn = latent(config, rope=rope, joined=True, query_scale=QueryScale(beta=beta, length=length))
    whole = r"(.*\.mlp)\.experts\."
    rules = (
        Drop((r"activation_scale$",)),
        Float8Blocks(),
        Split(whole + "gate_up_proj", (r"\1.switch_mlp.gate_proj.weight", r"\1.switch_mlp.up_proj.weight"), halves(1)),
        Rename(f"^{whole}down_proj$", r"\1.switch_mlp.down_proj.weight"),
        SplitHeads(attn),
        *stacked("mlp", "switch_mlp"),
    )
    tied = config.flag("tie_word_embeddings", False)
    return config.decoder(attn, mixture(config, router), tied=tied, more_rules=rules)
