"""A checkpoint's options can name a model that no memory holds, or files that fairseq fetches from a network.

Models are built under :func:`fairseq_compat.checkpoints.built_within`. ``from_pretrained`` sets up the subwords that a
checkpoint names; those whose files fairseq fetches are refused unless the caller asked for them.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_compat.errors import UserError


def adjust(module: Any) -> Iterator[None]:
    yield
    {"fairseq.checkpoint_utils": _build_within, "fairseq.hub_utils": _fetch_nothing}[module.__name__](module)


def _build_within(module: Any) -> None:
    from fairseq_compat import checkpoints

    original = module.load_model_ensemble_and_task

    @functools.wraps(original)
    def load_model_ensemble_and_task(
        filenames: Sequence[str], arg_overrides: Any = None, task: Any = None, strict: bool = True, suffix: str = "",
        num_shards: int = 1, state: Any = None,
    ) -> Any:  # fmt: skip
        if num_shards > 1:  # whose parts are no model; only the command line can ask for that
            return original(filenames, arg_overrides, task, strict, suffix, num_shards, state)
        models, cfg = [], None
        for filename in filenames:
            path = module.get_maybe_sharded_checkpoint_filename(filename, suffix, 0, 1)
            held = state or module.load_checkpoint_to_cpu(path, arg_overrides)
            with checkpoints.built_within(held["model"], path):
                built, cfg, task = original([filename], arg_overrides, task, strict, suffix, 1, held)
            models += built
        return models, cfg, task

    module.load_model_ensemble_and_task = load_model_ensemble_and_task


def _fetch_nothing(module: Any) -> None:
    from fairseq_compat.patches.checkpoints.belonging import settings_in

    original = module.from_pretrained

    @functools.wraps(original)
    def from_pretrained(
        model_name_or_path: str, checkpoint_file: str = "model.pt", data_name_or_path: str = ".",
        archive_map: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        named = (archive_map or {}).get(model_name_or_path)
        asked = {**(named if isinstance(named, dict) else {}), **given}
        loaded = original(model_name_or_path, checkpoint_file, data_name_or_path, archive_map, **given)
        bpe = settings_in("bpe", loaded["args"])
        fetched = bpe.get("bpe") == "bert" and not bpe.get("bert_vocab_file")
        if "bpe" not in asked and (fetched or any("://" in str(value) for value in bpe.values())):
            raise UserError(
                f"{model_name_or_path} was trained with --bpe {bpe['bpe']}, whose files would be fetched; give "
                f"from_pretrained bpe={bpe['bpe']!r} to allow it"
            )
        return loaded

    module.from_pretrained = from_pretrained
