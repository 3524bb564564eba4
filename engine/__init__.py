"""mlx-frontier's inference engine: the public door.

Names are imported on first use, so that `import engine` loads no MLX (and a BLAS can still be chosen).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine import errors as errors
    from engine.api import Engine as Engine
    from engine.api import load as load
    from engine.artifacts.archive import Archive as Archive
    from engine.artifacts.archive import archive_path as archive_path
    from engine.artifacts.archive import cached_archive as cached_archive
    from engine.artifacts.archive import fetch_archive as fetch_archive
    from engine.artifacts.builtin import BUILTIN as BUILTIN
    from engine.artifacts.builtin import cached_builtin as cached_builtin
    from engine.artifacts.cache import cache_folder as cache_folder
    from engine.artifacts.cache import write_atomically as write_atomically
    from engine.artifacts.convert import convert_gguf as convert_gguf
    from engine.artifacts.convert import dequantize_folder as dequantize_folder
    from engine.artifacts.drawn import DRAWN as DRAWN
    from engine.artifacts.drawn import Draw as Draw
    from engine.artifacts.drawn import draw_weights as draw_weights
    from engine.artifacts.drawn import read_draw as read_draw
    from engine.artifacts.resolve import require_model as require_model
    from engine.artifacts.resolve import resolve_model as resolve_model
    from engine.artifacts.tokenizer import load_tokenizer as load_tokenizer
    from engine.backend import OPENBLAS_INSTALL as OPENBLAS_INSTALL
    from engine.backend import machine as machine
    from engine.backend import memory as memory
    from engine.backend import openblas_path as openblas_path
    from engine.backend import use_blas as use_blas
    from engine.config import EngineConfig as EngineConfig
    from engine.graph.families import FAMILIES as FAMILIES
    from engine.graph.reading import read_architecture as read_architecture
    from engine.kv.request import parse_kv as parse_kv
    from engine.levers import LEVER_TABLE as LEVER_TABLE
    from engine.levers import LEVERS as LEVERS
    from engine.levers import Lever as Lever
    from engine.levers import Variant as Variant
    from engine.levers import read_lever_table as read_lever_table
    from engine.levers import read_levers as read_levers
    from engine.levers import read_removals as read_removals
    from engine.method.prefix import check_prefix as check_prefix
    from engine.quantize.affine import QuantPlan as QuantPlan
    from engine.quantize.affine import quantize_folder as quantize_folder
    from engine.sample.samplers import check_sampler as check_sampler
    from engine.sample.samplers import sampling_logprobs as sampling_logprobs
    from engine.train.loop import Trained as Trained
    from engine.train.loop import Training as Training
    from engine.train.lora import Lora as Lora
    from engine.train.lora import merge_adapter as merge_adapter
    from engine.train.lora import save_adapter as save_adapter
    from engine.train.run import read_parameters as read_parameters
    from engine.train.run import save_model as save_model
    from engine.train.run import save_mtp as save_mtp
    from engine.train.run import score_mtp as score_mtp
    from engine.train.run import train_adapter as train_adapter
    from engine.train.run import train_model as train_model
    from engine.train.run import train_mtp as train_mtp
    from engine.types import CacheLayer as CacheLayer
    from engine.types import Event as Event
    from engine.types import ForwardTrace as ForwardTrace
    from engine.types import Generation as Generation
    from engine.types import Likelihood as Likelihood
    from engine.types import Plan as Plan
    from engine.types import PrefixStatus as PrefixStatus
    from engine.types import Projection as Projection
    from engine.types import Rehearsal as Rehearsal
    from engine.types import Request as Request
    from engine.types import SamplingParams as SamplingParams
    from engine.types import ScoreBlock as ScoreBlock
    from engine.types import Usage as Usage


_DOOR = {
    "Archive": "engine.artifacts.archive:Archive",
    "BUILTIN": "engine.artifacts.builtin:BUILTIN",
    "DRAWN": "engine.artifacts.drawn:DRAWN",
    "Draw": "engine.artifacts.drawn:Draw",
    "CacheLayer": "engine.types:CacheLayer",
    "Engine": "engine.api:Engine",
    "EngineConfig": "engine.config:EngineConfig",
    "Event": "engine.types:Event",
    "FAMILIES": "engine.graph.families:FAMILIES",
    "ForwardTrace": "engine.types:ForwardTrace",
    "Generation": "engine.types:Generation",
    "LEVERS": "engine.levers:LEVERS",
    "LEVER_TABLE": "engine.levers:LEVER_TABLE",
    "Lever": "engine.levers:Lever",
    "Likelihood": "engine.types:Likelihood",
    "Lora": "engine.train.lora:Lora",
    "OPENBLAS_INSTALL": "engine.backend:OPENBLAS_INSTALL",
    "Plan": "engine.types:Plan",
    "PrefixStatus": "engine.types:PrefixStatus",
    "Projection": "engine.types:Projection",
    "QuantPlan": "engine.quantize.affine:QuantPlan",
    "Rehearsal": "engine.types:Rehearsal",
    "Request": "engine.types:Request",
    "SamplingParams": "engine.types:SamplingParams",
    "ScoreBlock": "engine.types:ScoreBlock",
    "Trained": "engine.train.loop:Trained",
    "Training": "engine.train.loop:Training",
    "Usage": "engine.types:Usage",
    "Variant": "engine.levers:Variant",
    "archive_path": "engine.artifacts.archive:archive_path",
    "cache_folder": "engine.artifacts.cache:cache_folder",
    "write_atomically": "engine.artifacts.cache:write_atomically",
    "cached_archive": "engine.artifacts.archive:cached_archive",
    "cached_builtin": "engine.artifacts.builtin:cached_builtin",
    "check_prefix": "engine.method.prefix:check_prefix",
    "check_sampler": "engine.sample.samplers:check_sampler",
    "convert_gguf": "engine.artifacts.convert:convert_gguf",
    "dequantize_folder": "engine.artifacts.convert:dequantize_folder",
    "draw_weights": "engine.artifacts.drawn:draw_weights",
    "fetch_archive": "engine.artifacts.archive:fetch_archive",
    "load": "engine.api:load",
    "load_tokenizer": "engine.artifacts.tokenizer:load_tokenizer",
    "machine": "engine.backend:machine",
    "memory": "engine.backend:memory",
    "merge_adapter": "engine.train.lora:merge_adapter",
    "score_mtp": "engine.train.run:score_mtp",
    "openblas_path": "engine.backend:openblas_path",
    "parse_kv": "engine.kv.request:parse_kv",
    "quantize_folder": "engine.quantize.affine:quantize_folder",
    "read_architecture": "engine.graph.reading:read_architecture",
    "read_draw": "engine.artifacts.drawn:read_draw",
    "read_lever_table": "engine.levers:read_lever_table",
    "read_levers": "engine.levers:read_levers",
    "read_parameters": "engine.train.run:read_parameters",
    "read_removals": "engine.levers:read_removals",
    "require_model": "engine.artifacts.resolve:require_model",
    "resolve_model": "engine.artifacts.resolve:resolve_model",
    "sampling_logprobs": "engine.sample.samplers:sampling_logprobs",
    "save_adapter": "engine.train.lora:save_adapter",
    "save_model": "engine.train.run:save_model",
    "save_mtp": "engine.train.run:save_mtp",
    "train_adapter": "engine.train.run:train_adapter",
    "train_model": "engine.train.run:train_model",
    "train_mtp": "engine.train.run:train_mtp",
    "use_blas": "engine.backend:use_blas",
}

__all__ = ["errors", *sorted(_DOOR)]

_WITHOUT_MLX = (
    "engine.artifacts.archive",
    "engine.artifacts.builtin",
    "engine.artifacts.cache",
    "engine.backend",
    "engine.config",
    "engine.graph.families",
    "engine.levers",
    "engine.types",
)


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("engine.errors")
    if name not in _DOOR:
        raise AttributeError(f"module 'engine' has no attribute {name!r}; it offers {', '.join(__all__)}")
    module, symbol = _DOOR[name].split(":")
    if module not in _WITHOUT_MLX:
        importlib.import_module("engine.backend").blas()  # a chosen BLAS must be loaded before MLX is
    return getattr(importlib.import_module(module), symbol)
