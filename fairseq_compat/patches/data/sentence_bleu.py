"""``fairseq-score --sentence-bleu`` stops with ``TypeError``: it makes its scorer in a way of before configurations."""

from collections.abc import Iterator
from typing import Any

from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield

    bleu = module.bleu

    def scorer(*given: Any) -> Any:
        config = (
            given[0] if len(given) == 1 else bleu.BleuConfig(**dict(zip(("pad", "eos", "unk"), given, strict=True)))
        )
        return bleu.Scorer(config)

    module.bleu = Overlay(bleu, Scorer=scorer)
