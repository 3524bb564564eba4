"""The fault register: where an oracle itself is wrong, a probe that shows it live, and what the engine does instead.

Plain decoding keeps mlx-lm's bits. Where mlx-lm crashes, ignores a request or contradicts its own plain decoding, the
engine does the right thing, and the entry here is the evidence. An entry whose probe no longer shows the fault is to
be removed: the oracle was mended.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from typing import cast

from engine import errors
from oracles.client import child_environment
from oracles.contract import OracleCrashed, StackConfig
from oracles.faults.entry import Fault, Shown
from oracles.tiny import tiny_model

# name -> "module:symbol"
FAULTS = {
    "max-kv-size-ignored": "oracles.faults.max_kv_size:FAULT",
    "empty-prompt-raises": "oracles.faults.empty_prompt:FAULT",
    "stream-drops-first-space": "oracles.faults.first_space:FAULT",
    "top-k-beyond-vocabulary": "oracles.faults.top_k:FAULT",
    "logit-bias-out-of-range": "oracles.faults.logit_bias:FAULT",
    "cold-float16-is-uniform": "oracles.faults.cold_float16:FAULT",
    "afm7-cannot-be-quantised": "oracles.faults.afm7_packing:FAULT",
    "gemma3-ropes-by-layer-type": "oracles.faults.gemma3_ropes:FAULT",
    "packed-keys-touched": "oracles.faults.packed_keys:FAULT",
    "packed-head-normalised": "oracles.faults.packed_head:FAULT",
    "rope-scaling-ignored": "oracles.faults.rope_scaling:FAULT",
    "expert-biases-unstacked": "oracles.faults.expert_biases:FAULT",
    "tied-head-read-unpacked": "oracles.faults.tied_packed_head:FAULT",
    "tied-minicpm-does-not-load": "oracles.faults.minicpm_tied:FAULT",
    "gpt-oss-last-layer-skipped": "oracles.faults.skipped_layer:FAULT",
    "gpt-oss-16-bit-unknown-keys": "oracles.faults.dense_gpt_oss:FAULT",
    "qwen2-moe-fields-unread": "oracles.faults.topk_norm:FAULT",
    "nested-rope-theta-ignored": "oracles.faults.rope_parameters:FAULT",
    "fp8-weights-read-as-bytes": "oracles.faults.fp8_bytes:FAULT",
    "plamo3-window-depends-on-chunk": "oracles.faults.window_by_chunk:FAULT",
    "tied-qwen3-vl-moe-does-not-load": "oracles.faults.vision_moe_tied:FAULT",
    "tower-vocabulary-overwritten": "oracles.faults.tower_vocabulary:FAULT",
    "block-sparse-prefill": "oracles.faults.block_sparse:FAULT",
    "linear-rope-refused": "oracles.faults.linear_rope:FAULT",
    "olmo-prompt-crashes": "oracles.faults.olmo_prompt:FAULT",
    "gpt2-prefix-does-not-load": "oracles.faults.gpt2_prefix:FAULT",
    "batch-crashes": "oracles.faults.batch_crashes:FAULT",
    "ragged-batch-rows": "oracles.faults.ragged:FAULT",
    "latent-words-unread": "oracles.faults.latent_words:FAULT",
    "latent-attention-crashes": "oracles.faults.latent_crashes:FAULT",
    "latent-originals-do-not-load": "oracles.faults.latent_originals:FAULT",
    "delta-hybrid-words-unread": "oracles.faults.delta_words:FAULT",
    "kimi-linear-of-one-kind": "oracles.faults.kimi_one_kind:FAULT",
    "qwen3-5-fields-unread": "oracles.faults.qwen3_5_fields:FAULT",
    "delta-nets-without-attention": "oracles.faults.short_hybrids:FAULT",
    "falcon-h1-factors": "oracles.faults.falcon_factors:FAULT",
    "jamba-expert-layers": "oracles.faults.jamba_experts:FAULT",
    "state-spaces-without-attention": "oracles.faults.state_spaces_only:FAULT",
    "mamba2-configs-of-transformers": "oracles.faults.state_space_configs:FAULT",
    "kv-bits-of-hybrids": "oracles.faults.listed_caches:FAULT",
    "recurrent-gemma-words-unread": "oracles.faults.recurrent_gemma_words:FAULT",
    "tied-baichuan-m1-crashes": "oracles.faults.baichuan_m1_tied:FAULT",
    "convolution-hybrids-of-one-kind": "oracles.faults.layers_of_one_kind:FAULT",
    "lfm2-vl-originals-do-not-load": "oracles.faults.lfm2_vl_original:FAULT",
    "sparse-attention-words-unread": "oracles.faults.sparse_words:FAULT",
    "deepseek-v41-prompt-cache-is-lost": "oracles.faults.v41_prompt_cache:FAULT",
    "deepseek-v41-groups-of-several-sizes": "oracles.faults.v41_groups:FAULT",
    "kv-bits-of-rings": "oracles.faults.packed_rings:FAULT",
    "kv-bits-of-odd-widths": "oracles.faults.packed_widths:FAULT",
    "optiq-convert-is-uniform": "oracles.faults.optiq_convert:FAULT",
    "optiq-batch-ignores-widths": "oracles.faults.optiq_batches:COLD_BITS",
    "optiq-batch-of-warm-and-cold": "oracles.faults.optiq_batches:WARM_BESIDE_COLD",
    "optiq-fused-batch-crashes": "oracles.faults.optiq_batches:FUSED_BESIDE_MASK",
}
PROBE_TIMEOUT_S = 120.0


def load_fault(name: str) -> Fault:
    """The entry; an unknown name raises `errors.UnknownField` with the known ones."""
    if name not in FAULTS:
        raise errors.UnknownField("fault register", name, FAULTS)
    module, symbol = FAULTS[name].split(":")
    return cast(Fault, getattr(importlib.import_module(module), symbol))


def probe_fault(name: str) -> Shown:
    """Run an entry's probe against the installed oracle, in a process of its own."""
    fault = load_fault(name)
    model = str(tiny_model(fault.family))
    env = child_environment(StackConfig(stack=fault.oracle, model=model))
    command = [sys.executable, "-P", "-m", "oracles.faults.child", name, model]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise OracleCrashed(f"the probe of fault {name!r} failed (exit code {done.returncode}):\n{done.stderr[-2000:]}")
    return Shown(**json.loads(done.stdout.splitlines()[-1]))


def as_row(name: str, shown: Shown) -> dict[str, object]:
    """One line of the register's report."""
    fault = load_fault(name)
    return {"name": name, "oracle": fault.oracle, "what": fault.what, "ours": fault.ours, **asdict(shown)}
