"""Reading checkpoints without running what is in them, and saying plainly what is wrong with one.

:mod:`fairseq_compat.plain_values` builds plain values and tensors, on every PyTorch; everything else is refused before
it is built. The checksums of a file are compared with its bytes before it is loaded, which PyTorch does not do.
"""

from __future__ import annotations

import logging
import os
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from typing import IO, Any, NamedTuple

import torch

from fairseq_compat import plain_values
from fairseq_compat.errors import UserError, first_line
from fairseq_compat.files import atomic_write, raising_later

logger = logging.getLogger(__name__)

#: Set to 1, this environment variable leaves the checksums of checkpoints alone.
SKIP_CHECKSUMS = "FAIRSEQ_COMPAT_SKIP_CRC"

#: Files whose checksums were right, by what changes when a file does.
_checked: set[tuple[int, ...]] = set()


def load(file: str | os.PathLike[str] | IO[bytes], *, mapped: bool = False) -> Any:
    """Return what ``torch.save`` wrote, with all tensors on the CPU.

    Args:
        file: a path, or a file opened for reading in binary mode.
        mapped: leave the tensors in the file and read each when it is used, where the file's format allows it; the
            file must be named by its path then, and must stay.

    Raises:
        UserError: the file is empty, truncated, damaged, not a PyTorch file, or has something else in it than plain
            values and tensors of numbers (the message says what).
        FileNotFoundError: there is no such file.
    """
    if not hasattr(file, "read"):
        if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
            raise UserError(f"{os.fspath(file)} is a pipe or a device; give a checkpoint's file")  # which would wait
        with open(file, "rb") as opened:
            return _load(opened, mapped)
    return _load(file, mapped=False)


def _load(file: Any, mapped: bool) -> Any:
    name = getattr(file, "name", "the checkpoint")
    version = _version(file)
    is_archive = file.read(len(plain_values.ARCHIVE)) == plain_values.ARCHIVE
    if is_archive and version not in _checked:
        _require_undamaged(file, name)
    file.seek(0)
    try:
        loaded = plain_values.read(file, mapped=mapped)
    except plain_values.RefusedError as error:
        raise UserError(f"{name} is refused: {error}") from error
    except Exception as error:  # what reading a damaged file raises is anything from EOFError to AssertionError
        size = file.seek(0, os.SEEK_END)
        if "allocate" in str(error) or isinstance(error, MemoryError):
            raise
        if size == 0:
            raise UserError(f"{name} is empty; a checkpoint that was saved completely is needed") from error
        if is_archive:
            raise UserError(f"{name} cannot be loaded: {first_line(error)}") from error
        raise UserError(f"{name} is not a PyTorch file, or is truncated ({size} bytes are there)") from error
    if not is_archive and version not in _checked:
        logger.warning("%s is of PyTorch 1.5 or older, whose files have no checksums: damage is not seen", name)
    if version is not None:
        _checked.add(version)  # a process looks once
    return loaded


def load_checkpoint(path: str | os.PathLike[str], *, mapped: bool = False) -> dict[str, Any]:
    """Return a fairseq checkpoint as the dictionary that is in the file; ``mapped`` as in :func:`load`.

    Raises:
        UserError: as :func:`load`, or the file is not a checkpoint of fairseq.
    """
    state = load(path, mapped=mapped)
    require_checkpoint(state, os.fspath(path))
    return state


def require_checkpoint(state: Any, name: str) -> None:
    """Raise :class:`UserError` unless ``state`` has what every checkpoint of fairseq has, and all of it is usable."""
    if not isinstance(state, dict):
        raise UserError(f"{name} is not a fairseq checkpoint: it holds a {type(state).__name__}, not a dictionary")
    has_options = state.get("args") is not None or state.get("cfg") is not None
    if "model" not in state or not has_options:
        keys = ", ".join(str(key) for key in list(state)[:6]) or "nothing"
        raise UserError(
            f"{name} is not a fairseq checkpoint: it needs the entry 'model' and one of 'cfg' and 'args', "
            f"and it has {keys}"
        )
    for entry, kind in _ENTRIES.items():
        value = _entry_of(state, entry)
        if not kind.fits(value) and (value is not None or (not kind.or_none and _has_entry(state, entry))):
            raise UserError(
                f"{name} is not a fairseq checkpoint: its entry {entry} is {_shown(value)}; it must be {kind.words}"
            )


class _Kind(NamedTuple):
    """What an entry of a checkpoint must be, how an error says so, and whether it may be None as well."""

    fits: Callable[[Any], bool]
    words: str
    or_none: bool = True


def _is_dictionary_of_tensors(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(tensor, torch.Tensor) for key, tensor in value.items()
    )


def _is_history(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_record_of_optimizer, value))


def _is_record_of_optimizer(value: Any) -> bool:
    if not isinstance(value, Mapping) or not _INTEGER.fits(value.get("num_updates", 0)):
        return False
    schedule = value.get("lr_scheduler_state") or {}
    if not isinstance(schedule, Mapping):
        return False
    restarts = schedule.get("restarts")
    return restarts is None or _is_list_of(_INTEGER, restarts)


def _is_list_of_groups(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(group, Mapping) and isinstance(group.get("params"), list) for group in value
    )


def _is_list_of(kind: _Kind, value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(kind.fits, value))


_TEXT = _Kind(lambda value: isinstance(value, str), "text")
_TEXTS = _Kind(lambda value: _is_list_of(_TEXT, value), "a list of texts")
_INTEGER = _Kind(lambda value: isinstance(value, Integral), "a whole number")  # NumPy's, too
_COUNT = _INTEGER._replace(or_none=False)
_NUMBER = _Kind(lambda value: isinstance(value, (Real, torch.Tensor)), "a number")
_TENSOR = _Kind(lambda value: isinstance(value, torch.Tensor), "a tensor")
_OPTIONS = _Kind(lambda value: isinstance(value, (Mapping, Namespace)), "options by name")
_DICTIONARY = _Kind(lambda value: isinstance(value, Mapping), "a dictionary")
_TENSORS = _Kind(_is_dictionary_of_tensors, "a dictionary of tensors")

#: What fairseq and this project write, and later read: each entry may be missing, but be of no other kind.
_ENTRIES: dict[str, _Kind] = {
    "model": _TENSORS._replace(or_none=False),
    "args": _Kind(lambda value: isinstance(value, Namespace), "options by name"),
    "args.arch": _TEXT,
    "args.task": _TEXT,
    "args.seed": _INTEGER,
    "cfg": _OPTIONS,
    **{f"cfg.{part}": _OPTIONS for part in ("model", "task", "common", "checkpoint", "optimization", "lr_scheduler")},
    "cfg.model._name": _TEXT,
    "cfg.model.arch": _TEXT,
    "cfg.task._name": _TEXT,
    "cfg.common.seed": _INTEGER,
    "optimizer_history": _Kind(_is_history, "a list that ends with the last optimizer's updates and schedule"),
    "last_optimizer_state.param_groups": _Kind(_is_list_of_groups, "a list of groups with params"),
    "last_optimizer_state.master_weights": _Kind(partial(_is_list_of, _TENSOR), "a list of tensors"),
    "task_state": _DICTIONARY,
    "task_state.last_growth": _DICTIONARY,
    "task_state.last_growth.new": _TEXTS,
    "task_state.last_growth.frozen": _TEXT,
    "extra_state": _DICTIONARY,
    "extra_state.train_iterator": _DICTIONARY,
    "extra_state.train_iterator.epoch": _COUNT,
    "extra_state.train_iterator.iterations_in_epoch": _COUNT,
    "extra_state.train_iterator.batches_in_epoch": _COUNT,
    "extra_state.val_loss": _NUMBER,
    "extra_state.best": _NUMBER,
    "extra_state.ema": _TENSORS,
    "extra_state.ema_fp32_params": _TENSORS,
    "extra_state.averaged_from": _TEXTS,
    "extra_state.grown_from": _TEXT,
    "extra_state.versions": _DICTIONARY,
}


def _entry_of(state: Any, entry: str) -> Any:
    """Return an entry of a checkpoint by the names that lead to it; None where there is none."""
    for name in entry.split("."):
        if isinstance(state, Namespace):
            state = vars(state)
        state = state.get(name) if isinstance(state, Mapping) else None
    return state


def _has_entry(state: Any, entry: str) -> bool:
    """Return whether an entry of dictionaries is there, if only as None."""
    names, _, last = entry.rpartition(".")
    holder = _entry_of(state, names) if names else state
    return isinstance(holder, Mapping) and last in holder


def _shown(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        return (
            f"a {type(value).__name__}"
            if value or isinstance(value, torch.Tensor)
            else f"an empty {type(value).__name__}"
        )
    return repr(value)[:60] if not isinstance(value, int) or abs(value) < 10**60 else "a number of more than 60 digits"


@contextmanager
def built_within(values: Mapping[str, torch.Tensor], name: str) -> Iterator[None]:
    """Stop the building of a model that has far more parameters than its checkpoint has values for.

    Options are a few bytes, and can name a model that no memory holds. Each parameter is looked at when its module gets
    it, before a value is written to it.

    Args:
        values: ``state["model"]``.
        name: of the checkpoint, for the error.

    Raises:
        UserError: the options that are recorded in it ask for such a model.
    """
    # Some are made and given up for those of another module, such as tied ones.
    tensors, numbers = 4 * len(values) + 1000, 4 * sum(value.numel() for value in values.values()) + 2**22

    def count(module: torch.nn.Module, parameter_name: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal tensors, numbers
        tensors, numbers = tensors - 1, numbers - (0 if parameter is None else parameter.numel())
        if tensors < 0 or numbers < 0:
            raise UserError(f"{name} cannot be loaded: its options are those of a larger model than it holds")

    hook = torch.nn.modules.module.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def options_in(state: Mapping[str, Any], part: str = "model") -> dict[str, Any]:
    """Return the options of a part of fairseq in a checkpoint; none where the part has none.

    Args:
        state: a checkpoint as fairseq writes it now (``cfg``) or wrote it before (``args``, without parts).
        part: "model", "task", "lr_scheduler" and so on.
    """
    cfg = state.get("cfg") or {part: state.get("args")}
    given = cfg.get(part) if isinstance(cfg, Mapping) else None
    if isinstance(given, Namespace):
        return dict(vars(given))
    return dict(given) if isinstance(given, Mapping) else {}


def updates_in(state: Mapping[str, Any]) -> int:
    """Return updates that the model in a checkpoint was trained for."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Save with ``torch.save`` to a file that appears whole or not at all."""
    with atomic_write(path) as file:
        save_to(state, file)


def save_to(state: Any, file: IO[bytes]) -> None:
    """Save with ``torch.save`` to an open file; a full disk or Ctrl-C in the middle is raised as such."""
    with raising_later(file) as carried_on:
        torch.save(state, carried_on)


def _require_undamaged(file: IO[bytes], name: str) -> None:
    """Compare an archive's checksums with its bytes.

    Raises:
        UserError: they differ.
    """
    if os.environ.get(SKIP_CHECKSUMS, "0") in ("", "0") and (damage := _damage(file)) is not None:
        raise UserError(f"{name} is {damage}; a whole copy of it is needed")


def _version(file: IO[bytes]) -> tuple[int, ...] | None:
    """Return what tells a file from another one, and from itself after a change; None where it is in memory only."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _damage(file: IO[bytes]) -> str | None:
    """Return what is wrong with an archive, after "the file is"; None where every checksum is right."""
    size = file.seek(0, os.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            plain_values.require_apart(archive.infolist(), size)
            for member in archive.infolist():
                try:
                    with archive.open(member) as content:
                        while content.read(1 << 20):
                            pass
                except Exception:  # of a wrong checksum, or name, or flag, or place in the file
                    return f"damaged: the checksum of {member.filename} is not that of its bytes"
    except plain_values.RefusedError as error:
        return f"refused: {error}"
    except Exception:
        return f"truncated or damaged ({size} bytes are there, and the archive has no readable end)"
    return None
