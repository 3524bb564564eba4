"""Simulated sessions in log time: [R sessions, launches, 2 quads, 4 positions], and the tests on them, vectorised.

Letters: R sessions, N launches. One noise sd is 1. An arm's true log gain is `gain`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

from lab.stats import sign_flip_counts

ABBA = np.array([0.5, -0.5, -0.5, 0.5])
LOOKS = ((8, 0.005), (16, 0.0175))
FAMILY = sum(alpha for _, alpha in LOOKS)


@dataclass(frozen=True)
class World:
    """What disturbs a session. Sizes in noise sd.

    drift: linear over the session; wave: amplitude of a slow sine; first: penalty of a quad's first slot; tails:
    degrees of freedom of Student noise; lag: AR(1) coefficient; bad: a quarter of the session is slower by this and
    five times as noisy; bad_session: one session of four is as a whole; burst: a neighbour slows about
    an eighth of the samples, in runs of six, by this; launch: sd of a process's own speed.
    """

    drift: float = 0.0
    wave: float = 0.0
    first: float = 0.0
    tails: float = 0.0
    lag: float = 0.0
    bad: float = 0.0
    bad_session: float = 0.0
    burst: float = 0.0
    launch: float = 0.0
    noise: float = 1.0


def launch_means(
    world: World, sessions: int, seed: int, *, gain: float = 0.0, coin: bool = True, relaunch: bool = True, n: int = 16
) -> np.ndarray:
    """Launch means of the quad values [R, N]. `coin` False always takes ABBA; `relaunch` False keeps the processes."""
    rng = np.random.Generator(np.random.PCG64(seed))
    steps = n * 8
    noise = rng.standard_t(world.tails, (sessions, steps)) if world.tails else rng.normal(size=(sessions, steps))
    if world.lag:
        for i in range(1, steps):
            noise[:, i] = world.lag * noise[:, i - 1] + np.sqrt(1 - world.lag**2) * noise[:, i]
    at = np.arange(steps) / steps
    log_t = world.noise * noise + world.drift * at
    if world.wave:
        log_t += world.wave * np.sin(2 * np.pi * (3 * at + rng.random((sessions, 1))))
    if world.bad:
        begin = rng.random((sessions, 1)) * 0.75
        inside = (at >= begin) & (at < begin + 0.25)
        log_t = np.where(inside, 5 * log_t + world.bad, log_t)
    if world.bad_session:
        worse = (np.arange(sessions) % 4 == 0)[:, None]
        log_t = np.where(worse, 5 * log_t + world.bad_session * (1 + 4 * at), log_t)
    if world.burst:
        begins = rng.random((sessions, steps)) < 1 / 48
        busy = np.zeros((sessions, steps), dtype=bool)
        for after in range(6):
            busy[:, after:] |= begins[:, : steps - after]
        log_t = log_t + world.burst * busy
    log_t = log_t.reshape(sessions, n, 2, 4)
    log_t[..., 0] += world.first
    luck = world.launch * rng.normal(size=(sessions, n if relaunch else 1, 1, 2))
    sign = np.where(rng.random((sessions, n, 2)) < 0.5, 1.0, -1.0) if coin else np.ones((sessions, n, 2))
    y = sign * (log_t @ ABBA) + luck[..., 0] - luck[..., 1] + gain
    return y.mean(axis=2)


def p_wilcoxon(x: np.ndarray) -> np.ndarray:
    """Exact one-sided p of each row [R, N] without ties, from the module's own table of counts."""
    n = x.shape[1]
    ranks = np.abs(x).argsort(axis=1).argsort(axis=1) + 1
    counts = np.array(sign_flip_counts(list(range(1, n + 1))), dtype=np.float64)
    survival = counts[::-1].cumsum()[::-1] / 2**n
    return survival[(ranks * (x > 0)).sum(axis=1)]


def p_t(x: np.ndarray) -> np.ndarray:
    """One-sided p of each row [R, N]."""
    n = x.shape[1]
    return scipy_stats.t.sf(x.mean(axis=1) * np.sqrt(n) / x.std(axis=1, ddof=1), n - 1)


def wins(x: np.ndarray, *, wilcoxon: bool = True, t: bool = True) -> np.ndarray:
    """Whether a session [R, 16] is called significant at either look, by the tests that are switched on."""
    won = np.zeros(len(x), dtype=bool)
    for n, alpha in LOOKS:
        passes = np.ones(len(x), dtype=bool)
        if wilcoxon:
            passes &= p_wilcoxon(x[:, :n]) <= alpha
        if t:
            passes &= p_t(x[:, :n]) <= alpha
        won |= passes
    return won
