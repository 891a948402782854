"""A byte tokenizer in the ``tokenizers`` format, so that any library can load it."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

END_TOKEN = "<|end|>"
END_TOKEN_ID = 256


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer whose token id is the byte, plus one end-of-document token with id 256."""
    printable = sorted(ByteLevel.alphabet())
    own = {character for character in printable if ord(character) < 256}
    rest = iter(sorted(character for character in printable if ord(character) >= 256))
    # The byte-level alphabet gives printable bytes their own character and numbers the others upward
    # from U+0100 in byte order, so walking the bytes in order assigns every id its byte.
    vocabulary = {(chr(byte) if chr(byte) in own else next(rest)): byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, END_TOKEN: END_TOKEN_ID}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_TOKEN,
        eos_token=END_TOKEN,
        pad_token=END_TOKEN,
        clean_up_tokenization_spaces=False,
    )
