"""A checkpoint is used with a dictionary in another order, or the languages the other way round, without a word.

No tensor shows that, nor another number of attention heads, and the numbers are wrong. Here every training leaves a
record in its checkpoints of what they belong to, as plain values by name: digests of dictionaries and of subword files,
languages, tokenizer, and options that change what a model computes, but no tensor. It is compared with what a
checkpoint is used with, here and in whatever else reads checkpoints. Only what both sides name is compared, so that
checkpoints without a record, fairseq's own and older ones, are used as before.
"""

from __future__ import annotations

import functools
import hashlib
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import check_before_training

#: In a checkpoint's ``extra_state``, and in the configuration of an exported folder.
ENTRY = "belongs_to"

Record = Mapping[str, str | int | float]

#: A language of another name may be the same, or one of many; the one of the other side is not.
_OTHER_SIDE = {"source_lang": "target_lang", "target_lang": "source_lang"}

#: Options of tasks that say what is put around sentences.
_OF_TASKS = ("encoder_langtok", "decoder_langtok", "lang_tok_replacing_bos_eos")

#: Options of fairseq's models that no tensor shows. Other dataclasses say it with ``changes_parameters``.
_OF_MODELS = {
    "encoder_attention_heads", "decoder_attention_heads", "activation_fn", "encoder_normalize_before",
    "decoder_normalize_before", "no_scale_embedding", "no_token_positional_embeddings", "share_all_embeddings",
    "share_decoder_input_output_embed", "cross_self_attention", "weight_softmax",
}  # fmt: skip


def require_same(name: str, recorded: Record, found: Record, where: str) -> None:
    """Compare a checkpoint's record with what it is used with.

    Args:
        name: of the checkpoint.
        recorded: in it.
        found: what it is used with.
        where: that is, for the error.

    Raises:
        UserError: something that both name differs.
    """
    for key, trained in recorded.items():
        given = found.get(key, trained)
        if given == trained or (key in _OTHER_SIDE and given != recorded.get(_OTHER_SIDE[key])):
            continue
        what = f"the {key.replace('_', ' ')}" if key.endswith("_dictionary") else f"--{key.replace('_', '-')}"
        raise UserError(
            f"{name} was trained with {what} {trained}, and with {where} it is {given}; give that of the training"
        )


def recorded_in(holder: Mapping[str, Any]) -> Record:
    """Return the record in a checkpoint, or in the configuration of an exported folder; empty where there is none."""
    holder = holder.get("extra_state") or holder
    found = holder.get(ENTRY) if isinstance(holder, dict) else None
    items = found.items() if isinstance(found, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, (str, int, float))}


def of_training(task: Any, cfg: Any) -> Record:
    """Return the record of a training with these options."""
    text = of_text(settings_in("tokenizer", cfg), settings_in("bpe", cfg))
    return {**of_task(task), **of_model(cfg.model), **text}


def of_task(task: Any) -> Record:
    """Return a task's dictionaries, languages, and what it puts around sentences."""
    options = options_of(task)
    named = {name: getattr(options, name) for name in _OF_TASKS if hasattr(options, name)}
    languages = {side: getattr(options, side, None) for side in _OTHER_SIDE}
    return {
        **of_dictionaries(task),
        **{side: language for side, language in languages.items() if isinstance(language, str)},
        **{name: _plain(value) for name, value in named.items()},
    }


def options_of(task: Any) -> Any:
    """Return a task's options, where each kind of task keeps them."""
    return getattr(task, "cfg", None) or getattr(task, "args", None)


def data_of(task: Any) -> str:
    """Return a task's folder of data, for errors."""
    return str(getattr(options_of(task), "data", "these data"))


def of_dictionaries(task: Any) -> Record:
    """Return digests of a task's dictionaries, symbols in order, and their sizes."""
    found = {}
    for name in ("source_dictionary", "target_dictionary"):
        with suppress(NotImplementedError):  # of a task that has none
            if (symbols := getattr(getattr(task, name, None), "symbols", None)) is not None:
                digest = hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogateescape")).hexdigest()
                found[name] = f"sha256:{digest[:16]} of {len(symbols)} symbols"
    return found


def of_model(options: Any) -> Record:
    """Return the options that change what a model computes, but perhaps no tensor.

    Depths are none of them: tensors show them, and a model can grow.
    """
    declared = getattr(_dataclass_of(options), "__dataclass_fields__", dict.fromkeys(_OF_MODELS))
    names = [
        name
        for name, field in declared.items()
        if getattr(field, "metadata", {}).get("changes_parameters", name in _OF_MODELS) and not name.endswith("_layers")
    ]
    values = {name: _plain(getattr(options, name)) for name in names if hasattr(options, name)}
    if values.get("share_all_embeddings"):
        values.pop("share_decoder_input_output_embed", None)  # is part of it
    return values


def of_text(tokenizer: Mapping[str, Any], bpe: Mapping[str, Any]) -> Record:
    """Return the names of tokenizer and subwords, and digests of the subwords' files, of :func:`settings_in`."""
    names = {kind: given[kind] for kind, given in (("tokenizer", tokenizer), ("bpe", bpe)) if kind in given}
    files = {name: value for name, value in bpe.items() if name != "bpe" and os.path.isfile(str(value))}
    return {**names, **{name: f"sha256:{file_digest(str(path))[:16]}" for name, path in files.items()}}


def settings_in(kind: str, cfg: Any) -> dict[str, Any]:
    """Return the name, under ``kind``, and the options of the ``tokenizer`` or ``bpe`` in fairseq's configuration."""
    from omegaconf import OmegaConf

    found = cfg.get(kind) if isinstance(cfg, Mapping) else getattr(cfg, kind, None)
    if isinstance(found, str) or found is None:
        return {kind: found} if found else {}
    found = vars(found) if isinstance(found, Namespace) else found
    missing = OmegaConf.missing_keys(found) if OmegaConf.is_config(found) else ()
    values = {name: found[name] for name in found if name not in missing}
    name = values.pop("_name", None) or values.get(kind)
    return {**values, kind: name} if name else {}


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _dataclass_of(options: Any) -> Any:
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

    arch = getattr(options, "_name", None) or getattr(options, "arch", None)
    return MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else str(value)


# --- where fairseq loads checkpoints --------------------------------------------------------------------------------


def adjust(module: Any) -> Iterator[None]:
    yield
    {
        "fairseq.trainer": _record_trainings,
        "fairseq.checkpoint_utils": _compare_data,
        "fairseq_cli.interactive": _compare_text,
    }[module.__name__](module)


def _record_trainings(module: Any) -> None:
    from fairseq_compat import checkpoints

    trainer = module.Trainer
    state_dict_of, load = trainer.state_dict, trainer.load_checkpoint

    @functools.wraps(load)
    def load_checkpoint(self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **given: Any) -> Any:
        self.belongs_to = of_training(self.task, self.cfg)
        if self.is_data_parallel_master and os.path.isfile(filename):
            recorded = recorded_in(checkpoints.load_checkpoint(filename, mapped=True))
            data = data_of(self.task)
            require_same(filename, recorded, of_model(self.cfg.model), "this command")
            if reset_optimizer or self.cfg.checkpoint.reset_dataloader:
                # Another training may begin with the model. A task may have other dictionaries, such as labels.
                found = {
                    name: value
                    for name, value in of_dictionaries(self.task).items()
                    if _size(value) == _size(recorded.get(name, value))
                }
                require_same(filename, recorded, found, data)
            else:
                require_same(filename, recorded, self.belongs_to, data)
                self.belongs_to = {**recorded, **self.belongs_to}
        return load(self, filename, reset_optimizer, *args, **given)

    @functools.wraps(state_dict_of)
    def state_dict(self: Any) -> dict[str, Any]:
        state: dict[str, Any] = state_dict_of(self)
        record = getattr(self, "belongs_to", None) or of_training(self.task, self.cfg)
        state["extra_state"][ENTRY] = dict(record)
        return state

    trainer.load_checkpoint, trainer.state_dict = load_checkpoint, state_dict


def _size(dictionary: object) -> str:
    return str(dictionary).partition(" ")[2]


def _compare_data(module: Any) -> None:
    from fairseq_compat import checkpoints

    read, load = module.load_checkpoint_to_cpu, module.load_model_ensemble_and_task

    @functools.wraps(read)
    def load_checkpoint_to_cpu(path: str, arg_overrides: Any = None, *args: Any, **given: Any) -> Any:
        state = read(path, arg_overrides, *args, **given)
        if arg_overrides:
            recorded = recorded_in(state)
            require_same(path, recorded, of_model(state["cfg"].model), "--model-overrides")
        return state

    @functools.wraps(load)
    def load_model_ensemble_and_task(
        filenames: Sequence[str], arg_overrides: Any = None, task: Any = None, *args: Any, **given: Any
    ) -> Any:
        def compare(task: Any) -> None:
            found, data = of_task(task), data_of(task)
            for path in filter(os.path.isfile, filenames):
                recorded = recorded_in(checkpoints.load_checkpoint(path, mapped=True))
                require_same(path, recorded, found, data)

        if task is not None:  # before tensors of other sizes are a longer sentence
            compare(task)
        loaded = load(filenames, arg_overrides, task, *args, **given)
        if task is None:
            compare(loaded[2])
        return loaded

    module.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    module.load_model_ensemble_and_task = load_model_ensemble_and_task


def _compare_text(module: Any) -> None:
    from fairseq_compat import checkpoints

    def check(cfg: Any) -> None:
        settings = settings_in("tokenizer", cfg), settings_in("bpe", cfg)
        for path in filter(os.path.isfile, module.utils.split_paths(cfg.common_eval.path or "")):
            recorded = recorded_in(checkpoints.load_checkpoint(path, mapped=True))
            require_same(path, recorded, of_text(*settings), "this command")

    check_before_training(module, check)
