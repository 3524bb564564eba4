"""gemma3n: a stack of streams with alternating updates, per-layer inputs, a sparse gelu, and last layers that attend
the last cache of their kind."""

from typing import Any

from engine.graph.altup import AltUpLayerSpec, StackedStemSpec, UnstackSpec
from engine.graph.families.common import ArchSpec, Config, Drop, HeadSpec, LayerSpec, StemSpec, plain_rope
from engine.graph.families.gemma2 import around
from engine.graph.per_layer import PerLayerGateSpec, PerLayerStemSpec

AT = "model.language_model"


def spec(config: Config) -> ArchSpec:
    text = config.inner("text_config")
    windows, streams = text.window_layers(), text.positive("altup_num_inputs")
    if streams < 2:
        raise text.invalid("altup_num_inputs", streams, "an integer >= 2")
    sources = shared_caches(text, text["layer_types"])
    width, head_dim = text.positive("hidden_size_per_layer_input"), text.positive("head_dim")

    def layer(i: int) -> AltUpLayerSpec:
        base = text.number("rope_local_base_freq" if windows[i] else "rope_theta")
        fields = {"scale": 1.0, "qk_norm": text.qk_heads(), "v_norm": text.rms(None), "reads": sources[i], **windows[i]}
        here = text.of_layer(i, "intermediate_size", "activation_sparsity_pattern")
        sparsity = here.number("activation_sparsity_pattern", 0.0, zero=True)
        feed: dict[str, Any] = {"act": "gelu_sparse", "limit": sparsity} if sparsity else {"act": "gelu_approx"}
        attn = text.attention(rope=plain_rope(head_dim, base), **fields)
        return AltUpLayerSpec(
            layer=LayerSpec(attention=attn, mlp=here.mlp(**feed), norms=around(text, 0.0)),
            per_layer=PerLayerGateSpec(index=i, dim=width),
            streams=streams,
            active=text.count("altup_active_idx"),
            coef_clip=text.read("altup_coef_clip", None),
            correct_scale=text.flag("altup_correct_scale"),
            rank=text.positive("laurel_rank"),
        )

    stem = StemSpec(key=f"{AT}.embed_tokens", scale=text.positive("hidden_size") ** 0.5)
    inputs = PerLayerStemSpec(stem=stem, at=AT, vocab=text.positive("vocab_size_per_layer_input"), dim=width)
    return text.arch(
        [layer(i) for i in range(len(windows))],
        stem=StackedStemSpec(stem=inputs, at=AT, streams=streams),
        layers_key=f"{AT}.layers",
        outlet=UnstackSpec(at=AT, streams=streams),
        norm=text.rms(f"{AT}.norm"),
        head=HeadSpec(tied=True, softcap=text.read("final_logit_softcapping", None), softcap_compiled=True),
        rules=(Drop((r"^model\.(vision_tower|audio_tower|embed_audio|embed_vision)\.",)), unread(sources)),
    )


def shared_caches(config: Config, kinds: list[str]) -> list[int | None]:
    """Per layer the cache that it reads: for the last num_kv_shared_layers the last one of their kind before them."""
    shared, known = config.count("num_kv_shared_layers"), ("full_attention", "sliding_attention")
    own = len(kinds) - shared
    last = {kind: i for i, kind in enumerate(kinds[: max(own, 0)])}
    for kind in kinds:
        if kind not in known:
            raise config.invalid("layer_types", kind, known)
        if kind not in last:
            raise config.invalid("num_kv_shared_layers", shared, f"a number that leaves one {kind} layer")
    return [None if i < own else last[kind] for i, kind in enumerate(kinds)]


def unread(sources: list[int | None]) -> Drop:
    """Keys and values of the layers that read another's; checkpoints hold them all the same."""
    layers = "|".join(str(i) for i, source in enumerate(sources) if source is not None)
    return Drop((rf"layers\.({layers})\.self_attn\.([kv]_proj|k_norm)\.",))
