"""``-s xx`` or ``-t xx`` alone is ignored: fairseq takes the first pair of languages that the data folder lists.

A model is then trained, or asked, for another direction than the command says. Here the other language is that of the
one pair that fits, and a language without data is refused.
"""

import functools
import os
from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.TranslationTask.setup_task.__func__

    @functools.wraps(original)
    def setup_task(cls: Any, cfg: Any, **given: Any) -> Any:
        if (cfg.source_lang is None) != (cfg.target_lang is None):
            folder = module.utils.split_paths(cfg.data)[0]
            if os.path.isdir(folder) and (pairs := pairs_in(folder)):
                cfg.source_lang, cfg.target_lang = _fitting(pairs, cfg.source_lang, cfg.target_lang, folder)
        return original(cls, cfg, **given)

    module.TranslationTask.setup_task = classmethod(setup_task)


def pairs_in(folder: str) -> set[tuple[str, str]]:
    """Return the pairs of languages of a data folder, from names such as ``train.en-de.de.idx``."""
    parts = [name.split(".") for name in os.listdir(folder)]
    pairs = [tuple(name[1].split("-")) for name in parts if len(name) >= 3]
    return {(pair[0], pair[1]) for pair in pairs if len(pair) == 2}


def _fitting(pairs: set[tuple[str, str]], source: str | None, target: str | None, folder: str) -> tuple[str, str]:
    """Return the one direction that has the language given; data of a pair serves both."""
    directions = pairs | {(second, first) for first, second in pairs}
    fitting = sorted(pair for pair in directions if source in (None, pair[0]) and target in (None, pair[1]))
    option = f"--source-lang {source or repr(source)}" if target is None else f"--target-lang {target or repr(target)}"
    if not fitting:
        known = ", ".join(sorted({language for pair in pairs for language in pair}))
        raise UserError(f"{option} is none of the languages of {folder}: {known}")
    if len(fitting) > 1:
        several = ", ".join("-".join(pair) for pair in fitting)
        raise UserError(f"{option} leaves a choice in {folder}: {several}; give --source-lang and --target-lang")
    return fitting[0]
