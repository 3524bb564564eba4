"""nanochat: norms without weights, also on the embedding; a rope in the other sense before qk-norms; relu squared."""

from engine.graph.families.common import Config, arch, attention
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, NormSpec, QkNorm, RopeSpec, StemSpec

NORM = NormSpec(key=None, eps=1e-5)
DEFAULTS = {
    "hidden_size": 1280,
    "num_hidden_layers": 20,
    "num_attention_heads": 10,
    "num_key_value_heads": 10,
    "vocab_size": 65536,
    "intermediate_size": 5120,
}


def spec(config: Config) -> ArchSpec:
    config = config.replaced(**{name: config.read(name, value) for name, value in DEFAULTS.items()})
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    rope = RopeSpec(dims=head_dim, base=config.number("rope_theta", 10000.0), scaling={"type": "reversed", "exp": True})
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            rope=rope,
            qk_norm=QkNorm(q=NORM, k=NORM, where="rotated"),
            q="c_q",
            k="c_k",
            v="c_v",
            o="c_proj",
        ),
        mlp=MlpSpec(hidden=config.positive("intermediate_size"), act="relu2", gate=None, up="c_fc", down="c_proj"),
        norms=Norms(pre_attn=NORM, pre_mlp=NORM),
        attn_key="attn",
    )
    return arch(
        config,
        layer,
        tied=False,
        stem=StemSpec(key="transformer.wte", norm=NORM),
        norm=NORM,
        head=HeadSpec(tied=False, softcap=15.0, softcap_compiled=True),
        layers_key="transformer.h",
        rules=(),
    )
