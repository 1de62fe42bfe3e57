"""A language pair without validation set ends ``translation_multi_simple_epoch`` before training, with a ``KeyError``.

Five languages of OPUS-100 have none. Here such directions are trained and not validated, as long as others are.
"""

import functools
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    manager = module.MultilingualDatasetManager
    original = manager.get_data_paths_and_lang_pairs

    @functools.wraps(original)
    def get_data_paths_and_lang_pairs(self: Any, split: str) -> tuple[dict[str, str], dict[str, list[str]]]:
        paths, pairs = original(self, split)
        if split != getattr(self.args, "train_subset", None):
            there = self._get_shard_num_dict(split, module.utils.split_paths(paths["main"]))
            named = [pair for pair in pairs["main"] if pair in there or "-".join(reversed(pair.split("-"))) in there]
            pairs = {**pairs, "main": named or pairs["main"]}
        return paths, pairs

    manager.get_data_paths_and_lang_pairs = get_data_paths_and_lang_pairs
