"""mlx-lm: streamed text is not what the tokenizer decodes: the detokenizer for byte-level BPE drops a first space."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """Stream the tokens of " salt road" through mlx-lm's detokenizer and compare with the tokenizer's decode."""
    from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw)
    ids = tokenizer.encode(" salt road", add_special_tokens=False)
    stream = BPEStreamingDetokenizer(tokenizer)
    for token in ids:
        stream.add_token(token)
    stream.finalize()
    decoded = tokenizer.decode(ids)
    return Shown(stream.text != decoded, f"streamed {stream.text!r}, decoded {decoded!r}")


FAULT = Fault(
    oracle="mlx-lm",
    where="tokenizer_utils.py BPEStreamingDetokenizer._maybe_trim_space",
    what="streamed text drops the first space",
    ours="the stream concatenates to the tokenizer's decode",
    probe=probe,
)
