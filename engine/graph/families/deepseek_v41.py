"""deepseek_v41: a window, and compressed groups of tokens that some layers make and pick for others; several residual
streams; mixtures throughout; the original's weights are 8 or 4-bit floats with a scale for a tile."""

import re
from dataclasses import replace
from typing import Any

import mlx.core as mx

from engine.graph.compressed import CompressedSpec, IndexerSpec
from engine.graph.families.common import DEFAULTS, Config
from engine.graph.hyper import HyperLayerSpec, StreamsOutletSpec, StreamsStemSpec
from engine.graph.renames import Arrays, Drop, Rename, stacked
from engine.graph.spec import ArchSpec, RopeSpec, RouterSpec, Rule, StemSpec

_EXPERTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_SCORES = {"sqrtsoftplus": "sqrtsoftplus_float32", "sigmoid": "sigmoid_float32", "softmax": "softmax_float32"}
# What the original's names become, one after the other.
_NAMES = (
    (r"^head\.", "lm_head."),
    (r"^embed\.", "model.embed_tokens."),
    (r"^(layers|norm)\.", r"model.\1."),
    (r"\.attn\.", ".self_attn."),
    (r"\.ffn\.", ".mlp."),
    (r"\.attn_norm\.", ".input_layernorm."),
    (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"\.hc_(attn|ffn)_", r".\1_hc."),
    (r"\.attn_sink$", ".sinks"),
    (r"\.w([qo])_([ab])\.", r".\1_\2_proj."),
    (r"\.wkv\.", ".kv_proj."),
    (r"\.wgate\.", ".gate_proj."),
    (r"\.q_norm\.", ".q_a_norm."),
    (r"\.compressor\.norm\.", ".compressor.kv_norm."),
    (r"\.indexer\.wk\.", ".indexer.k_proj."),
    (r"\.gate\.bias$", ".gate.e_score_correction_bias"),
    *((rf"\.shared_experts\.{old}\.", f".shared_experts.{new}.") for old, new in _EXPERTS.items()),
)


def _packed(arrays: Arrays) -> Arrays:
    """Small floats and their scales, powers of two, are MLX's once they are read as words and as exponents."""
    made = dict(arrays)
    for name in [key.removesuffix(".scale") for key in arrays if key.endswith(".scale")]:
        if f"{name}.weight" not in made:
            continue
        weight, scale = made[f"{name}.weight"], made.pop(f"{name}.scale")
        if scale.dtype != mx.uint8:
            scale = (mx.log2(scale.astype(mx.float32)) + 127).astype(mx.uint8)
        if scale.shape[-2] != weight.shape[-2]:  # a scale for each tile of 32 rows
            scale = mx.repeat(scale, 32, axis=-2)[..., : weight.shape[-2], :]
        made |= {f"{name}.weight": weight.view(mx.uint32), f"{name}.scales": scale}
    return made


def _original(groups: int) -> Any:
    """The original's names, none of which begins with model, become mlx-lm's."""
    rules: tuple[Rule, ...] = (
        Drop((r"^(vision\.|aligner\.|image_|mtp\.)", r"\.engram\.", r"\.gate\.bias_vl$")),
        _packed,
        *(Rename(old, new) for old, new in _NAMES),
        *stacked("mlp", "experts.switch_mlp", _EXPERTS),
    )

    def rule(arrays: Arrays) -> Arrays:
        if any(key.startswith("model.") for key in arrays):
            return arrays
        for each in rules:
            arrays = each(arrays)
        cut = re.compile(r"\.o_a_proj\.\w+$")
        return {k: v.reshape(groups, -1, v.shape[-1]) if cut.search(k) else v for k, v in arrays.items()}

    return rule


def _ids(config: Config, key: str) -> list[int]:
    """Numbers of layers."""
    value, count = config.holding(key, list, []), config.positive("num_hidden_layers")
    if not all(isinstance(i, int) and 0 <= i < count for i in value):
        raise config.invalid(key, value, f"numbers of the {count} layers")
    return list(value)


def _rope(config: Config, compressed: bool) -> RopeSpec:
    """Yarn where keys are compressed; elsewhere the same formula with nothing stretched."""
    dims = config.positive("qk_rope_head_dim")
    if dims % 2 or dims > config.positive("head_dim"):
        raise config.invalid("qk_rope_head_dim", dims, "an even number, at most head_dim")
    if not compressed:
        return RopeSpec(dims=dims, base=config.number("rope_theta"), scaling={"factor": 1.0})
    given = config.inner("rope_scaling") if config.get("rope_scaling") else Config({})
    given.choice("type", ("yarn", "deepseek_yarn"), given.get("rope_type", "yarn"))
    scaling = {
        "factor": float(given.number("factor", 1.0)),
        "original_max_position_embeddings": given.positive(
            "original_max_position_embeddings", config.positive("max_position_embeddings")
        ),
        "beta_fast": int(given.number("beta_fast", 32)),
        "beta_slow": int(given.number("beta_slow", 1)),
    }
    return RopeSpec(dims=dims, base=config.number("compress_rope_theta"), scaling=scaling)


def _check_ratios(config: Config, ratios: list[int], makers: list[int], pickers: list[int], source: Any) -> None:
    """What a layer reads of others must be of groups of one size: their counts and places are the same then."""

    def last(layer: int, among: list[int]) -> int | None:
        return max((i for i in among if i <= layer), default=None)

    keys = [last(i, [j for j in makers if j in pickers]) for i in range(len(ratios))]
    for i, ratio in enumerate(ratios):
        maker, picker = last(i, makers), last(i, pickers)
        read = [] if picker is None or not ratio else [picker, keys[picker], maker]
        if picker is not None and isinstance(source, int) and 0 <= source < picker and source in pickers:
            read.append(keys[source])
        if len({ratios[j] for j in read if j is not None}) > 1:
            raise config.invalid("compress_ratios", ratios, f"one ratio in the layers {read}, which layer {i} reads")


def _attentions(config: Config) -> list[CompressedSpec]:
    count = config.positive("num_hidden_layers")
    ratios = [config.replaced(ratio=r).count("ratio") for r in config.holding("compress_ratios", list, [])]
    ratios = (ratios + [0] * count)[:count]
    makers, pickers = _ids(config, "kv_source_layer_ids"), _ids(config, "index_source_layer_ids")
    for key, ids in (("kv_source_layer_ids", makers), ("index_source_layer_ids", pickers)):
        if not all(ratios[i] for i in ids):
            raise config.invalid(key, ids, "layers whose compress_ratios are above 0")
    blocks, size = config.count("candidate_topk_blocks"), config.positive("candidate_block_size")
    source = config.read("candidate_source_layer_id", -1) if blocks else -1
    _check_ratios(config, ratios, makers, pickers, source)
    heads, groups = config.positive("num_attention_heads"), config.positive("o_groups")
    if heads % groups:
        raise config.invalid("o_groups", groups, f"a divisor of num_attention_heads={heads}")
    index = IndexerSpec(
        heads=config.positive("index_n_heads"),
        dim=config.positive("index_head_dim"),
        top=config.positive("index_topk"),
        makes_keys=False,
    )
    plain = CompressedSpec(
        heads=heads,
        dim=config.positive("head_dim"),
        q_rank=config.positive("q_lora_rank"),
        groups=groups,
        o_rank=config.positive("o_lora_rank"),
        eps=config.number("rms_norm_eps"),
        rope=_rope(config, False),
        window=config.positive("sliding_window"),
        ratio=0,
        makes=False,
        indexer=None,
    )
    made = []
    for i, ratio in enumerate(ratios):
        narrows = (blocks, size) if i == source else None
        indexer = replace(index, makes_keys=i in makers, candidates=narrows) if i in pickers else None
        rope = _rope(config, True) if ratio else plain.rope
        made.append(replace(plain, rope=rope, ratio=ratio, makes=i in makers, indexer=indexer))
    return made


def spec(config: Config) -> ArchSpec:
    if "text_config" in config:
        config = config.inner("text_config", **DEFAULTS["deepseek_v41"]).replaced(model_type=config["model_type"])
    if config.get("engram_layer_ids"):
        raise config.invalid("engram_layer_ids", config["engram_layer_ids"], "none: mlx-lm has no engram memory")
    streams, steps = config.positive("hc_mult"), config.positive("hc_sinkhorn_iters")
    expert = config.mlp(
        hidden=config.positive("moe_intermediate_size"),
        act="swiglu_float32",
        limit=config.number("swiglu_limit", zero=True),
    )
    router = RouterSpec(
        raw=True,
        float32_in=True,
        score=_SCORES[config.choice("scoring_func", _SCORES)],  # type: ignore[arg-type]
        temperature=config.number("gate_temp"),
        correction="gate.e_score_correction_bias",
        normalise="sum" if config.flag("norm_topk_prob") else None,
        only_above_one=True,
        eps=1e-20,
        scale=config.number("routed_scaling_factor"),
    )
    moe = config.moe(
        router,
        experts="n_routed_experts",
        expert=expert,
        at="experts.switch_mlp",
        shared=expert,
        scores_float32=True,
    )
    eps = config.number("hc_eps", zero=True)
    layers = [
        HyperLayerSpec(layer=layer, streams=streams, steps=steps, eps=eps)
        for layer in config.layers(_attentions(config), moe)
    ]
    return config.arch(
        layers,
        tied=False,
        stem=StreamsStemSpec(stem=StemSpec(), streams=streams),
        outlet=StreamsOutletSpec(),
        rules=(_original(config.positive("o_groups")),),
    )
