"""The model class behind `mlx_lm.evaluate`, asked as lm-eval asks it. Imported only in a worker's process.

mlx-lm's module imports three names of lm-eval, which is not installed: the package itself (only its command line uses
it), a base class and a decorator that enters a class into a register. Neither does anything in what is asked here, and
empty ones stand in for them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any


class _Base:
    """lm-eval's LM, as far as `loglikelihood` and `generate_until` need it."""


@dataclass(frozen=True)
class _Request:
    """What is needed of lm-eval's Instance."""

    args: tuple[Any, ...]


def _register(*names: str) -> Callable[[type], type]:
    return lambda kind: kind


def _stand_in() -> None:
    names = ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.api.registry")
    modules = {name: ModuleType(name) for name in names}
    modules["lm_eval.api.model"].__dict__["LM"] = _Base
    modules["lm_eval.api.registry"].__dict__["register_model"] = _register
    sys.modules.update(modules)


@functools.cache
def _model(folder: str) -> Any:
    """One model, in its checkpoint's dtype, without its chat template: texts are asked as they are, with one BOS."""
    if "lm_eval" not in sys.modules and importlib.util.find_spec("lm_eval") is None:
        _stand_in()
    return importlib.import_module("mlx_lm.evaluate").MLXLM(folder, batch_size=1, use_chat_template=False)


def evaluate(
    model: str, pairs: Sequence[Sequence[str]], prompts: Sequence[tuple[str, int, list[str]]]
) -> dict[str, Any]:
    """pairs: of context and continuation; prompts: of text, longest answer in tokens, and strings that end it.

    "scores": nats and whether each token was the first choice, of each pair; "ids": those of each context, and of the
    context with its continuation; "texts": what came after each prompt; "prompt_ids": those of each prompt.
    """
    asked = _model(model)
    scores = asked.loglikelihood([_Request(tuple(pair)) for pair in pairs]) if pairs else []
    ids = [asked._tokenize([context, context + behind]) for context, behind in pairs]
    ends = [asked.tokenizer.eos_token]  # where a task names no end, as lm-eval does: none at all is an error in mlx-lm
    kinds = [(text, {"max_gen_toks": most, "until": until or ends}) for text, most, until in prompts]
    texts = asked.generate_until([_Request(kind) for kind in kinds]) if kinds else []
    return {"scores": scores, "ids": ids, "texts": texts, "prompt_ids": asked._tokenize([p[0] for p in prompts])}
