"""Sampling of one request: logits processors, samplers, key chains and log-probabilities.

Pure functions on logits [1, V]. Order, defaults, dtypes and random-number consumption are those of mlx-lm 0.32.2
(sample_utils.py and generate_step); values that it ignores or crashes on are typed errors when a sampler is built.
"""
