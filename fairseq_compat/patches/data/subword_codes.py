"""``--bpe subword_nmt`` reads its codes in the encoding of the locale, and so misreads them outside of UTF-8 locales.

Words with letters beyond ASCII are then split otherwise than in training, without a word. The codes are read as UTF-8,
as subword-nmt writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.SubwordNMTBPE.__init__

    def read_codes(self: Any, cfg: Any) -> None:
        if cfg.bpe_codes is None or find_spec("subword_nmt") is None:
            original(self, cfg)  # it says what is missing
            return
        from subword_nmt.apply_bpe import BPE

        with open(module.file_utils.cached_path(cfg.bpe_codes), encoding="utf-8") as codes:
            self.bpe = BPE(codes, separator=cfg.bpe_separator)
        self.bpe_symbol = f"{cfg.bpe_separator} "

    module.SubwordNMTBPE.__init__ = read_codes
