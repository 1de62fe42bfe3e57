"""``--tokenizer moses_normalized``: punctuation normalized as for the training text, then the tokenizer of Moses.

fairseq's own ``moses`` keeps typographic quotes and dashes. A model whose training text went through Moses'
normalize-punctuation, as in the papers, has never seen these. Words with hyphens stay whole and nothing is escaped.
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass


@dataclass
class MosesNormalizedConfig(FairseqDataclass):
    """The languages are those of ``--source-lang`` and ``--target-lang``, options of the task as well."""

    source_lang: Optional[str] = field(default=None, metadata={"help": "source language"})  # noqa: UP045  # read by fairseq
    target_lang: Optional[str] = field(default=None, metadata={"help": "target language"})  # noqa: UP045  # read by fairseq


@register_tokenizer("moses_normalized", dataclass=MosesNormalizedConfig)
class MosesNormalizedTokenizer:
    """One line of text at a time, to tokens separated by spaces and back."""

    def __init__(self, cfg: MosesNormalizedConfig) -> None:
        # Not above: it takes half a second to import, and every command registers this tokenizer.
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        self._normalizer = MosesPunctNormalizer(cfg.source_lang or "en")
        self._tokenizer = MosesTokenizer(cfg.source_lang or "en")
        self._detokenizer = MosesDetokenizer(cfg.target_lang or "en")

    def encode(self, line: str) -> str:
        """Return the tokens of a text."""
        return str(self._tokenizer.tokenize(self._normalizer.normalize(line), return_str=True, escape=False))

    def decode(self, tokens: str) -> str:
        """Return the text of tokens."""
        return str(self._detokenizer.detokenize(tokens.split(), unescape=False))
