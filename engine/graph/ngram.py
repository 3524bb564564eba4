"""A stem that adds embeddings of the last tokens together to that of each token, by hashes of their ids.

Letters: B rows, L length, S ids in reach, D model dimension. Order of operations as in mlx-lm 0.32.2
(models/longcat_flash_ngram.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from engine.graph.forward import Forward
from engine.graph.params import Weights
from engine.graph.spec import ArchSpec
from engine.kv.spec import CacheSpec


@dataclass(frozen=True, kw_only=True)
class NgramStemSpec:
    """For every length of 2 .. `reach` tokens `splits` tables of about `rows` rows, all together no wider than D.

    key: what its parameters are under. Its one cache is ArchSpec.stem_caches: the last reach - 1 ids.
    """

    key: str
    reach: int
    splits: int
    rows: int

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return (CacheSpec(kind="state", slots=1, grows=True),)


class NgramStem:
    """Ids [B, L] -> the residual stream [B, L, D]. `table` is the token embedding."""

    def __init__(self, spec: NgramStemSpec, arch: ArchSpec, weights: Weights) -> None:
        self.spec = spec
        self.table = weights.embedding(f"{spec.key}.word_embeddings", arch.vocab, arch.dim)
        count = spec.splits * (spec.reach - 1)
        width = arch.dim // count
        # Odd numbers of rows, so that two tables seldom give two n-grams the same row both.
        self.rows = [spec.rows + 2 * i + 1 for i in range(count)]
        self.tables = [weights.embedding(f"{spec.key}.embedders.{i}", rows, width) for i, rows in enumerate(self.rows)]
        self.projections = [
            weights.linear(f"{spec.key}.post_projs.{i}", arch.dim, width, bias=False) for i in range(count)
        ]
        self.vocab = arch.vocab

    def __call__(self, ctx: Forward) -> mx.array:
        ids, state = ctx.ids.astype(mx.int64), ctx.state(0)
        (past,) = state.slots
        known = ids if past is None else mx.concatenate([past, ids], axis=-1)  # [B, S]
        state.append(ids.shape[1], known[:, max(0, known.shape[1] - self.spec.reach + 1) :])
        x = self.table(ids)
        back = [_delayed(known, n) for n in range(self.spec.reach)]
        for i, (rows, table, project) in enumerate(zip(self.rows, self.tables, self.projections, strict=True)):
            hashed = known
            for n in range(1, i // self.spec.splits + 2):
                hashed = hashed + back[n] * pow(self.vocab, n, rows)
            x = x + project(table((hashed % rows)[:, -ids.shape[1] :]))
        return x / (1 + len(self.tables))


def _delayed(ids: mx.array, tokens: int) -> mx.array:
    """Ids [B, S] a number of tokens later, with 0 before the first."""
    B, S = ids.shape
    return mx.concatenate([mx.zeros((B, min(tokens, S)), ids.dtype), ids[:, : max(S - tokens, 0)]], axis=-1)
