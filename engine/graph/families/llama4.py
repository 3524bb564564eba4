"""llama4: a text tower whose layers attend in chunks, every fourth all tokens without rope and with queries that grow;
a norm without weight on rotated heads; mixtures of one expert and a shared one."""

from typing import Any

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, NormSpec, QkNorm, RouterSpec
from engine.graph.families.towers import text_tower
from engine.graph.renames import transposed_experts
from engine.graph.spec import QueryScale

_UNIT = NormSpec(key=None, eps=1e-6)


def spec(config: Config) -> ArchSpec:
    text = config.inner("text_config")
    bias, step = text.flag("attention_bias"), text.positive("interleave_moe_layer_step")
    if text.positive("num_experts_per_tok") != 1:
        raise text.invalid("num_experts_per_tok", text["num_experts_per_tok"], "1")
    head_dim = text.positive("head_dim", text.even_head_dim())
    chunk = {"cache": "chunked", "window": text.positive("attention_chunk_size")}
    grown = None
    if text.get("attn_temperature_tuning", 4):
        beta, length = text.number("attn_scale", 0.1), text.number("floor_scale", 8192)
        grown = QueryScale(beta=beta, length=length, shift=1, cast="product")
    router = RouterSpec(key="router", score="logits", selected="sigmoid_float32", cast="input")
    shared = {"shared": text.mlp(), "shared_at": "shared_expert"}
    names = {"experts": "num_local_experts", "hidden": "intermediate_size", "at": "experts"}
    sparse = text.moe(router, prescale=True, **shared, **names)
    dense = text.mlp(hidden=text.positive("intermediate_size_mlp"))

    local = [(i + 1) % 4 != 0 for i in range(text.positive("num_hidden_layers"))]  # fixed in mlx-lm
    given = text.get("no_rope_layers") or local
    turns = [bool(v) for v in given] if isinstance(given, list) else given
    if text.read("no_rope_layer_interval", 4) != 4 or turns != local:
        raise text.invalid("no_rope_layers", given, "every fourth layer")

    def attn(i: int) -> AttentionSpec:
        changes: dict[str, Any] = {"rope": None, "query_scale": grown}
        if local[i]:
            changes = {"rope": text.rope(head_dim, None, traditional=True), **chunk}
            if text.flag("use_qk_norm"):
                changes["qk_norm"] = QkNorm(q=_UNIT, k=_UNIT, where="rotated")
        return text.attention(head_dim=head_dim, bias=bias, **changes)

    made = text.layers(attn, lambda i: sparse if i % step == step - 1 else dense, mlp_key="feed_forward")
    return text_tower(config, text.arch(made, tied=False, rules=transposed_experts("feed_forward", "experts")))
