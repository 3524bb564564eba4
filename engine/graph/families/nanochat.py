"""nanochat: norms without weights, also on the embedding; a rope in the other sense before qk-norms; relu squared."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, NormSpec, QkNorm, RopeSpec, StemSpec

NORM = NormSpec(key=None, eps=1e-5)


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["nanochat"])
    head_dim, reverse = config.even_head_dim(), {"type": "reversed", "exp": True}
    rope = RopeSpec(dims=head_dim, base=config.number("rope_theta"), scaling=reverse)
    names = {"q": "c_q", "k": "c_k", "v": "c_v", "o": "c_proj"}
    qk_norm = QkNorm(q=NORM, k=NORM, where="rotated")
    layer = LayerSpec(
        attention=config.attention(head_dim=head_dim, rope=rope, qk_norm=qk_norm, bias=False, **names),
        mlp=config.mlp(act="relu2", gate=None, up="c_fc", down="c_proj"),
        norms=Norms(pre_attn=NORM, pre_mlp=NORM),
        attn_key="attn",
    )
    stem, head = StemSpec(key="transformer.wte", norm=NORM), HeadSpec(tied=False, softcap=15.0, softcap_compiled=True)
    return config.arch(layer, stem=stem, norm=NORM, head=head, layers_key="transformer.h", tied=False, rules=())
