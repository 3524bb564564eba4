"""longcat_flash: two latent attentions and MLPs a layer, beside them a mixture with experts that return their input.
longcat_flash_ngram: the same over a stem of hashed n-grams."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, Drop, LayerSpec, Rename, RouterSpec, stacked
from engine.graph.families.deepseek_v3 import latent
from engine.graph.latent import LatentSpec, SplitHeads
from engine.graph.ngram import NgramStemSpec
from engine.graph.shortcut import IdentityMoeSpec, ShortcutLayerSpec


def _attention(config: Config) -> LatentSpec:
    def factor(flag: str, rank: str) -> float | None:
        scaled = config.flag(flag, False)
        return (config.positive("hidden_size") / config.positive(rank)) ** 0.5 if scaled else None

    q_factor = factor("mla_scale_q_lora", "q_lora_rank")
    return latent(config, eps=1e-5, q_factor=q_factor, kv_factor=factor("mla_scale_kv_lora", "kv_lora_rank"))


def _arch(config: Config, *rules: Any, **fields: Any) -> ArchSpec:
    config.choice("attention_method", ("MLA",), "MLA")
    config.choice("zero_expert_type", ("identity",), "identity")
    attn = _attention(config)
    halves = [
        LayerSpec(
            attention=attn,
            mlp=config.mlp(hidden=config.positive("ffn_hidden_size")),
            norms=config.pre_norms(f"input_layernorm.{i}", f"post_attention_layernorm.{i}"),
            attn_key=f"self_attn.{i}",
            mlp_key=f"mlps.{i}",
        )
        for i in range(2)
    ]
    router = RouterSpec(
        key="router.classifier",
        bias=config.flag("router_bias", False),
        score="softmax_plain",
        correction="router.e_score_correction_bias",
        pick="back",
        normalise="sum" if config.flag("norm_topk_prob", False) else None,
        eps=1e-20,
        scale=config.number("routed_scaling_factor"),
        cast="input",
    )
    moe = config.moe(router, experts="n_routed_experts", top_k="moe_topk", hidden="expert_ffn_hidden_size")
    beside = IdentityMoeSpec(moe=moe, identities=config.count("zero_expert_num"))
    layer = ShortcutLayerSpec(first=halves[0], second=halves[1], beside=beside)
    made = [layer] * config.positive("num_layers")
    more = (Drop((r"^model\.mtp",)), SplitHeads(attn), *stacked("mlp", "switch_mlp"), *rules)
    return config.arch(made, tied=False, more_rules=more, **fields)


def spec(config: Config) -> ArchSpec:
    return _arch(config)


def ngram(config: Config) -> ArchSpec:
    reach, splits = config.positive("emb_neighbor_num", 4), config.positive("emb_split_num", 4)
    if reach < 2:
        raise config.invalid("emb_neighbor_num", reach, "at least 2 tokens together")
    if splits * (reach - 1) > config.positive("hidden_size"):
        raise config.invalid("emb_split_num", splits, "no more tables than hidden_size")
    stem = NgramStemSpec(
        key="model.ngram_embeddings",
        reach=reach,
        splits=splits,
        rows=config.positive("ngram_vocab_size_ratio", 78) * config.positive("vocab_size"),
    )
    words = Rename(r"^model\.embed_tokens\.", f"{stem.key}.word_embeddings.")
    return _arch(config, words, stem=stem, stem_caches=stem.caches)
