"""mamba, falcon_mamba: one mixer a layer whose states are carried token by token, and nothing else."""

from engine.graph.families.common import Config
from engine.graph.families.mamba2 import backbone
from engine.graph.mamba import MambaSpec
from engine.graph.spec import ArchSpec, NormSpec


def rank(config: Config, key: str) -> int:
    """How many values the step sizes are made from; "auto" is a sixteenth of hidden_size."""
    if config.read(key, "auto") == "auto":
        return -(-config.positive("hidden_size") // 16)
    return config.positive(key)


def spec(config: Config) -> ArchSpec:
    config.choice("hidden_act", ("silu",), "silu")
    norm = NormSpec(key=None, eps=config.number("mixer_rms_eps", 1e-6))
    normed = config["model_type"] == "falcon_mamba" or config.flag("use_bcdt_rms", False)
    mixer = MambaSpec(
        channels=config.positive("intermediate_size"),
        state=config.positive("state_size"),
        rank=rank(config, "time_step_rank"),
        width=config.positive("conv_kernel"),
        conv_bias=config.flag("use_conv_bias"),
        bias=config.flag("use_bias"),
        norms=(norm, norm, norm) if normed else None,
        plain=True,  # its states go token by token in mlx-lm too: there is no other form to switch to
    )
    return backbone(config, mixer, config.number("layer_norm_epsilon", 1e-5))
