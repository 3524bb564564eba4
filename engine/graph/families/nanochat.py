"""nanochat: norms without weights, also on the embedding; a rope in the other sense before qk-norms; relu squared."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, Norms, NormSpec, QkNorm, RopeSpec, StemSpec

NORM = NormSpec(key=None, eps=1e-5)


def spec(config: Config) -> ArchSpec:
    head_dim, reverse = config.even_head_dim(), {"type": "reversed", "exp": True}
    rope = RopeSpec(dims=head_dim, base=config.number("rope_theta"), scaling=reverse)
    normed, names = QkNorm(q=NORM, k=NORM, where="rotated"), {"q": "c_q", "k": "c_k", "v": "c_v", "o": "c_proj"}
    return config.decoder(
        config.attention(head_dim=head_dim, rope=rope, qk_norm=normed, **names),
        config.mlp(act="relu2", gate=None, up="c_fc", down="c_proj"),
        norms=Norms(pre_attn=NORM, pre_mlp=NORM),
        attn_key="attn",
        stem=StemSpec(key="transformer.wte", norm=NORM),
        norm=NORM,
        head=HeadSpec(tied=False, softcap=15.0, softcap_compiled=True),
        layers_key="transformer.h",
        rules=(),
    )
