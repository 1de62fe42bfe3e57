"""Patches for checkpoints: they are read without running code, written atomically, and compared with data and options.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

import torch

from fairseq_compat import checkpoints, files, provenance
from fairseq_compat.errors import UserError
from fairseq_compat.patching import Overlay, as_configuration, patch, replaces
from fairseq_compat.ranges import LAYERS_TO_KEEP, numbers_of_layers
from fairseq_compat.recorded_files import FILES_OF_TASKS, recorded_file


@patch(mentioned="torch.load")
def load_without_running_code(module: Any) -> None:
    """PyTorch 2.6 and newer refuse fairseq's checkpoints; older versions run whatever code is in them.

    Here every module of fairseq that mentions ``torch.load`` gets :func:`fairseq_compat.checkpoints.load` in its place,
    which builds plain values and tensors and nothing else, with every PyTorch. In ``checkpoint_utils`` the file must be
    a checkpoint. Objects that the processes of a run send each other are loaded as before.
    """

    def load(file: IO[bytes], map_location: Any = None) -> Any:
        if module.__name__ == "fairseq.distributed.utils":
            return torch.load(file, map_location=map_location, weights_only=False)
        state = checkpoints.load(file)
        if module.__name__ == "fairseq.checkpoint_utils":
            checkpoints.require_checkpoint(state, getattr(file, "name", "the checkpoint"))
        return state

    # A module may mention torch.load only in a comment.
    if hasattr(module, "torch"):
        module.torch = Overlay(module.torch, load=load)


@patch("fairseq.file_utils")
def check_archive_members(module: Any) -> None:
    """An archive that ``from_pretrained`` unpacks can write files anywhere, or move a folder of the user's away.

    fairseq unpacks every member under its name in the archive, even ``../../.profile``. Here names that lead out of the
    archive's folder are refused, and so is everything but files, folders and links within it.
    """
    module.tarfile = Overlay(tarfile, open=_CheckedArchive.open)


class _CheckedArchive(tarfile.TarFile):
    """An archive that is checked in :meth:`getnames`, which fairseq calls before it unpacks the archive.

    Python's own filters of ``extractall`` would not be enough: fairseq then moves the folder with which all names
    begin. For names such as ``/home/me/file`` that is a folder of the user's.
    """

    def getnames(self) -> list[str]:
        for member in self.getmembers():
            is_link = member.islnk() or member.issym()
            names = [member.name, member.linkname] if is_link else [member.name]
            if not (member.isreg() or member.isdir() or is_link) or any(map(_leads_out, names)):
                raise UserError(f"{self.name!s} is refused: its member {member.name!r} leads out of its folder")
        return super().getnames()


def _leads_out(path: str) -> bool:
    # Also by Windows' separators and drives (C:).
    return path.startswith(("/", "\\")) or ".." in path.replace("\\", "/").split("/") or path[1:2] == ":"


@patch("fairseq.checkpoint_utils")
def write_checkpoints_atomically(module: Any) -> None:
    """A kill or a full disk during saving leaves half a ``checkpoint_last.pt``, the file that a restart reads.

    fairseq writes the first file of a save to a temporary file and renames it without flushing, then overwrites
    ``checkpoint_best.pt`` and ``checkpoint_last.pt`` with copies. Here each is written to a temporary file, flushed
    and renamed.
    """

    @replaces(module, "torch_persistent_save")
    def torch_persistent_save(original: Any, obj: Any, filename: str, async_write: bool = False) -> None:
        # Three attempts, as in fairseq: failures of network file systems may be temporary.
        for _ in range(2):
            with suppress(OSError):
                return checkpoints.save(obj, filename)
        return checkpoints.save(obj, filename)

    # fairseq copies the first file of a save to checkpoint_best.pt and checkpoint_last.pt by PathManager.copy.
    class PathManager(module.PathManager):
        @staticmethod
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
            files.copied_whole(src_path, dst_path)
            return True

    module.PathManager = PathManager


@patch("fairseq.checkpoint_utils", before="load_checkpoint")
def refuse_missing_checkpoints(cfg: Any, trainer: Any) -> None:
    """If a checkpoint is missing, or not a file, a training starts from scratch, and only a line of the log says so.

    Here it is refused, unless it is missing in the training's own ``--save-dir``: commands give ``checkpoint_last.pt``
    there to resume from, and before their first start it does not exist.
    """
    # Only the first process reads the file; the disks of others need not have it. Sharded models have other file names.
    if not trainer.is_data_parallel_master or trainer.checkpoint_suffix:
        return
    last = os.path.join(cfg.save_dir, "checkpoint_last.pt")
    options = {"--save-dir": last}
    if cfg.restore_file != "checkpoint_last.pt":
        options["--restore-file"] = cfg.restore_file
    elif not os.path.isfile(last):  # fairseq reads these files only if there is nothing to resume
        options |= {"--continue-once": cfg.continue_once, "--finetune-from-model": cfg.finetune_from_model}
    for option, path in options.items():
        if path is None or os.path.isfile(path):
            continue
        # A missing file in --save-dir may be one that the training itself will write.
        is_own = path and os.path.realpath(os.path.dirname(path)) == os.path.realpath(cfg.save_dir)
        if os.path.lexists(path) or not is_own:
            raise UserError(
                f"{option} {path or repr(path)} is not a file; give a checkpoint, or leave the option out: a training "
                f"resumes from {last} by default, which must be a file"
            )


@patch("fairseq.checkpoint_utils", function="_upgrade_state_dict")
def accept_weights_alone(original: Any, state: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint with only options and weights is taken for one of 2018, and ends in ``KeyError: 'best_loss'``.

    Here it is read like the checkpoint of a model that was trained for 0 updates.
    """
    # Checkpoints of 2018 have best_loss and epoch instead.
    if not state.get("optimizer_history") and "best_loss" not in state:
        names = {"criterion_name": "", "optimizer_name": ""}
        state["optimizer_history"] = [{**names, "lr_scheduler_state": {}, "num_updates": 0}]
    if not state.get("extra_state") and "epoch" not in state:
        state["extra_state"] = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    return original(state)


@patch("fairseq.checkpoint_utils", function="prune_state_dict")
def prune_only_what_is_asked(original: Any, state_dict: dict[str, Any], model_cfg: Any) -> dict[str, Any]:
    """``--encoder-layers-to-keep`` alone removes all layers of the decoder, and then the checkpoint cannot be loaded.

    Nor can the checkpoints of a training that starts with this option: fairseq prunes them once more. Here the layers
    of the other side are kept, a checkpoint with as many layers as are kept is left as it is, and a layer that it does
    not have is refused.
    """
    if model_cfg is None or not any(getattr(model_cfg, name, None) for name in LAYERS_TO_KEEP):
        return original(state_dict, model_cfg)
    for name in LAYERS_TO_KEEP:
        side = name.partition("_")[0]
        layers = set()
        for parameter in state_dict:
            number = re.search(r"\.layers\.(\d+)\.", parameter)
            if number is not None and parameter.startswith(side):
                layers.add(int(number[1]))
        value = getattr(model_cfg, name, None)
        option = f"--{name.replace('_', '-')}"
        layers_to_keep = numbers_of_layers(option, value) if value else sorted(layers)
        if len(layers_to_keep) == len(layers):
            layers_to_keep = sorted(layers)
        if not layers.issuperset(layers_to_keep):
            raise UserError(f"{option} {value}: the checkpoint has the layers 0 to {len(layers) - 1} of the {side}")
        if layers:
            setattr(model_cfg, name, ",".join(map(str, layers_to_keep)))
    return original(state_dict, model_cfg)


@patch("fairseq.checkpoint_utils")
def compare_checkpoint_with_data(module: Any) -> None:
    """A checkpoint is used silently with dictionaries, languages or options that it was not trained with.

    Here its record is compared with the data and ``--model-overrides``, its options may not build a model far larger
    than the file, and its parameters must be finite. Files that its task names are looked for beside it. Training does
    not read checkpoints this way.
    """

    @replaces(module, "load_checkpoint_to_cpu")
    def load_checkpoint_to_cpu(original: Any, path: str, arg_overrides: Any = None, *args: Any, **kwargs: Any) -> Any:
        state = original(path, arg_overrides, *args, **kwargs)
        if arg_overrides:
            options = provenance.of_model(state["cfg"].model)
            provenance.require_same(path, provenance.recorded_in(state), options, "--model-overrides")
        return state

    @replaces(module, "load_model_ensemble_and_task")
    def load_model_ensemble_and_task(
        original: Any,
        filenames: Sequence[str],
        arg_overrides: Any = None,
        task: Any = None,
        strict: bool = True,
        suffix: str = "",
        num_shards: int = 1,
        state: Any = None,
    ) -> Any:
        if num_shards > 1:  # a shard alone is not a model that could be checked
            return original(filenames, arg_overrides, task, strict, suffix, num_shards, state)
        models, cfg = [], None
        # One by one, so that an error names the file; all share the task of the first.
        for filename in filenames:
            path = module.get_maybe_sharded_checkpoint_filename(filename, suffix, 0, 1)
            # fairseq allows a state only with a single file.
            checkpoint = state or module.load_checkpoint_to_cpu(path, arg_overrides)
            recorded = _prepare_checkpoint(checkpoint, path, task, arg_overrides or {})
            with checkpoints.built_within(checkpoint["model"], path):
                built, cfg, task = original([filename], arg_overrides, task, strict, suffix, 1, checkpoint)
            provenance.require_same(path, recorded, provenance.of_task(task), provenance.data_of(task))
            checkpoints.require_same_kinds_of_numbers(built[0], checkpoint["model"], path)
            checkpoints.require_finite(built[0].named_parameters(), path)
            models += built
        return models, cfg, task


def _prepare_checkpoint(checkpoint: Any, path: str, task: Any, overrides: Mapping[str, Any]) -> provenance.Record:
    """Return the record of a checkpoint, and set its options so that its model can be built.

    Raises:
        UserError: its architecture is unknown, or it was trained with other data than that of ``task`` (may be None).
    """
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    model, options_of_task = checkpoint["cfg"].model, checkpoint["cfg"].task
    arch = provenance.architecture_of(model)
    if arch not in ARCH_MODEL_REGISTRY and arch not in MODEL_REGISTRY:
        raise UserError(f"{path} was trained with --arch {arch}; give the plugin that has it with --user-dir")
    recorded = {**provenance.languages_in(options_of_task), **provenance.recorded_in(checkpoint)}
    if task is None:
        _set_paths_of_task_files(options_of_task, path, overrides)
    else:  # compared early: an error about tensor sizes would be harder to understand
        provenance.require_same(path, recorded, provenance.of_task(task), provenance.data_of(task))
    checkpoints.forget_initial_values(model)
    return recorded


def _set_paths_of_task_files(options: Any, path: str, overrides: Mapping[str, Any]) -> None:
    """Set the options of a task that name files, as recorded in a checkpoint, to where the files are now."""
    for name in FILES_OF_TASKS:
        recorded = getattr(options, name, None)
        if recorded and name not in overrides:
            # The name alone may be in the folder of data, or beside that: the latter has the lists of languages.
            data = options.data.split(os.pathsep)[0]
            file = recorded_file(recorded, path, [data, os.path.dirname(os.path.abspath(data))])
            if file is not None:
                setattr(options, name, file)


@patch("fairseq.models.fairseq_model", function="BaseFairseqModel.load_state_dict")
def require_equal_shared_parameters(
    original: Any, self: Any, state_dict: Any, strict: bool = True, **kwargs: Any
) -> Any:
    """If an option shares embeddings, and a checkpoint has different values for them, the last ones are used silently.

    Here such a checkpoint is refused.
    """
    loaded = original(self, state_dict, strict, **kwargs)
    if strict:
        checkpoints.require_one_value(self, state_dict)
    return loaded


@patch("fairseq.hub_utils", function="from_pretrained")
def find_files_beside_checkpoint(
    original: Any, model_name_or_path: str, checkpoint_file: str = "model.pt", *args: Any, **options: Any
) -> Any:
    """``from_pretrained`` reads subword files with recorded names from the current folder, or downloads them.

    Here a recorded file is looked for beside the checkpoint first, everything is compared with the checkpoint's record,
    and downloads are refused unless the caller asks for them.
    """
    loaded = original(model_name_or_path, checkpoint_file, *args, **options)
    cfg = loaded["args"]
    _refuse_downloads(model_name_or_path, provenance.settings_in("bpe", cfg), options)
    paths = [os.path.join(model_name_or_path, name) for name in checkpoint_file.split(os.pathsep)]  # of an ensemble
    for path in filter(os.path.isfile, paths):
        record = provenance.recorded_in(checkpoints.load_checkpoint(path, mapped=True))
        for option, value in provenance.settings_in("bpe", cfg).items():
            if isinstance(value, str) and option not in ("bpe", "bpe_separator", *options):
                file = recorded_file(value, path, [model_name_or_path], record.get(option))
                if file is not None:
                    setattr(cfg.bpe, option, file)
        provenance.require_same(path, record, provenance.of_text_in(cfg), "these arguments")
    return loaded


def _refuse_downloads(model: str, subwords: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise UserError if fairseq would download subword files, and no argument of the call asks for it."""
    name = subwords.get("bpe")
    if name in ("gpt2", "bert", "hf_byte_bpe", "byte_bpe"):  # whose files have default addresses
        is_refused = "bpe" not in options
        remedy = f"bpe={name!r} allows it"
    else:
        is_refused = any("://" in str(value) for value in subwords.values())
        remedy = "give their paths, such as bpe_codes"
    if is_refused:
        raise UserError(f"{model} was trained with --bpe {name}, whose files would be downloaded; {remedy}")


@patch("fairseq.optim.fp16_optimizer")
def save_master_weights(module: Any) -> None:
    """A resumed training in bf16 or fp16 starts from rounded weights, not from the float32 ones that it updates.

    fairseq keeps a float32 master copy of every parameter, but saves only the model's half-precision values. Here the
    master copies are in the optimizer's state, and a resumed training gives identical results. A checkpoint without
    them is loaded as before, and a weight that was changed meanwhile takes precedence over its master copy.
    """

    @replaces(module._FP16OptimizerMixin, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        return {**original(self), "master_weights": [master.detach() for master in _list_masters(self)]}

    @replaces(module._FP16OptimizerMixin, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: dict[str, Any], optimizer_overrides: Any = None) -> None:
        original(self, state, optimizer_overrides)
        _restore_masters(self, state.get("master_weights") or [])


def _list_masters(optimizer: Any) -> list[Any]:
    """Return the float32 tensors that an optimizer updates: one per parameter, or one vector of all parameters."""
    masters = optimizer.fp32_params  # if flat, a dictionary by device
    return list(masters.values()) if isinstance(masters, dict) else list(masters)


def _restore_masters(optimizer: Any, saved: list[Any]) -> None:
    """Copy each saved master value to an optimizer if it rounds to the present half-precision weight."""
    weights, masters = list(optimizer.fp16_params), _list_masters(optimizer)
    # With another number of weights the model has changed, such as by growth: it starts from its weights.
    if not saved or sum(map(torch.numel, saved)) != sum(map(torch.numel, weights)):
        return
    with torch.no_grad():
        # One tensor per weight or one vector of all: either way the order is that of the weights.
        saved_values, rounded, values = (_flatten_tensors(tensors) for tensors in (saved, weights, masters))
        restored = torch.where(saved_values.to(rounded.dtype) == rounded, saved_values, values)
        parts = restored.split([master.numel() for master in masters])
        for master, part in zip(masters, parts, strict=True):
            master.copy_(part.view_as(master))


def _flatten_tensors(tensors: list[Any]) -> torch.Tensor:
    return torch.cat([tensor.cpu().flatten() for tensor in tensors])


@patch("fairseq_cli.interactive", before="main")
def compare_text_options(cfg: Any) -> None:
    """``fairseq-interactive`` silently accepts a tokenizer or subwords that a model was not trained with.

    Here they are compared with the record of each checkpoint.
    """
    from fairseq.utils import split_paths

    cfg = as_configuration(cfg)
    text = provenance.of_text_in(cfg)
    for path in filter(os.path.isfile, split_paths(cfg.common_eval.path or "")):
        recorded = provenance.recorded_in(checkpoints.load_checkpoint(path, mapped=True))
        provenance.require_same(path, recorded, text, "this command")
