"""Reads checkpoints without running code from them, and reports in one sentence what is wrong with a file.

:mod:`fairseq_compat.torch_files` builds plain values and tensors, with every PyTorch; everything else is refused
before it is built. A file's checksums are verified before it is loaded, which PyTorch does not do.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import torch

from fairseq_compat import provenance, torch_files
from fairseq_compat.errors import UserError, named
from fairseq_compat.files import atomic_write, require_file
from fairseq_compat.plain_values import RefusedError

#: Maximum size of a table of sinusoidal positions, width x length: it is computed from options, and not stored in the
#: file, whose size would limit it.
_MOST_IN_POSITIONS = 2**27

#: Options of models that name files of pretrained embeddings.
EMBEDDING_OPTIONS = ("encoder_embed_path", "decoder_embed_path", "pretrained_xlm_checkpoint")

#: fairseq reads only the device and the type of this buffer, and never sets its value: a checkpoint has whatever was in
#: memory, perhaps NaN.
_NEVER_READ = "_float_tensor"


def load(file: str | os.PathLike[str] | IO[bytes], *, mapped: bool = False) -> Any:
    """Return what ``torch.save`` wrote to a path or an open file, with all tensors on the CPU.

    With ``mapped`` the file, given by its path, is memory-mapped: each tensor is read when it is used.

    Raises:
        UserError: the file is damaged, or contains anything but plain values and tensors of numbers.
    """
    if isinstance(file, (str, os.PathLike)):
        require_file(file)
        with open(file, "rb") as opened:
            return load(opened, mapped=mapped)
    name = getattr(file, "name", "the checkpoint")
    try:
        return torch_files.read(file, mapped=mapped)
    except RefusedError as error:
        raise UserError(f"{name} is refused: {error}") from error
    except Exception as error:  # reading a damaged file raises anything from EOFError to AssertionError
        # Too little memory is not the file's fault; PyTorch's "can't allocate memory" is a RuntimeError.
        if "allocate" in str(error) or isinstance(error, MemoryError):
            raise
        size = file.seek(0, os.SEEK_END)
        raise UserError(
            f"{name} is damaged, truncated or not a PyTorch file ({size} bytes, {named(error)}); give a complete copy"
        ) from error


def load_checkpoint(path: str | os.PathLike[str], *, mapped: bool = False) -> dict[str, Any]:
    """Return a fairseq checkpoint as a dictionary; refuse other files. ``mapped`` as in :func:`load`."""
    state = load(path, mapped=mapped)
    require_checkpoint(state, os.fspath(path))
    return state


def require_checkpoint(state: Any, name: str) -> None:
    """Raise :class:`UserError` unless ``state`` has the entries of a checkpoint: tensors, and consistent options."""
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(model, dict) or not all(isinstance(value, torch.Tensor) for value in model.values()):
        raise UserError(f"{name} is not a fairseq checkpoint: it has no entry 'model' with tensors by name")
    # fairseq 0.10 wrote a namespace "args"; later versions write "cfg", and "args" as None.
    options = [state[part] for part in ("cfg", "args") if state.get(part) is not None]
    if len(options) != 1 or not isinstance(options[0], (Mapping, Namespace)):
        raise UserError(f"{name} is not a fairseq checkpoint: it needs options in either 'cfg' or 'args'")
    if updates_in(state) < 0:
        raise UserError(f"{name} is damaged: its model was trained for {updates_in(state)} updates")
    model, task = (Namespace(**options_in(state, part)) for part in ("model", "task"))
    # 512 is the default of fairseq's models, whose options need not have all values.
    widths = [vars(model).get(f"{side}_embed_dim", 512) for side in ("encoder", "decoder")]
    width = max((number for number in widths if isinstance(number, int)), default=512)
    longest = max(provenance.limits_in(model).values(), default=0)
    if width * longest > _MOST_IN_POSITIONS:
        raise UserError(f"{name} is refused: its options ask for more positions than fit into memory")
    # A file whose options were changed after the training would build another model than its record says.
    if recorded := provenance.recorded_in(state):
        options_of_parts = {**provenance.of_model(model), **provenance.limits_in(task)}
        provenance.require_same(name, recorded, options_of_parts, "its own options")


def require_one_value(model: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Raise :class:`UserError` if a checkpoint has different ``values`` for a shared parameter of a model."""
    names: dict[torch.nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = names.setdefault(parameter, name)
        has_both = first != name and {first, name} <= values.keys()  # fairseq saves each name of a shared parameter
        if has_both and not torch.allclose(values[first], values[name], rtol=0, atol=0, equal_nan=True):
            raise UserError(f"{name} and {first} are shared by the model's options, but differ in its checkpoint")


def require_same_kinds_of_numbers(model: torch.nn.Module, values: Mapping[str, torch.Tensor], name: str) -> None:
    """Raise UserError if a checkpoint has integers for a floating-point parameter, or the reverse.

    PyTorch would convert them silently: weights that a damaged file declares as integers become other numbers.
    """
    for key, tensor in model.state_dict().items():
        if key in values and values[key].is_floating_point() != tensor.is_floating_point():
            in_file = str(values[key].dtype).removeprefix("torch.")
            in_model = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{name} is damaged: it has {key} as {in_file} instead of a type such as {in_model}")


@contextmanager
def built_within(values: Mapping[str, torch.Tensor], name: str) -> Iterator[None]:
    """Stop building a model that has far more parameters than its checkpoint, ``name``, has ``values``.

    A few bytes of options can describe a model that does not fit into memory. Each parameter is counted when it is
    registered, before a value is written to it.
    """
    # The factor allows for parameters that are created and then replaced, such as tied embeddings.
    tensors = 4 * len(values) + 1000
    numbers = 4 * sum(value.numel() for value in values.values()) + 2**22

    def count(module: torch.nn.Module, parameter_name: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal tensors, numbers
        tensors -= 1
        numbers -= 0 if parameter is None else parameter.numel()
        if tensors < 0 or numbers < 0:
            raise UserError(f"{name} cannot be loaded: its options are those of a larger model than it holds")

    hook = torch.nn.modules.module.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def require_finite(values: Iterable[tuple[str, torch.Tensor]], name: str) -> None:
    """Raise UserError unless all values of a model, (name, tensor) pairs, are finite; after divergence they are not."""
    parameters, diverged = 0, []
    for key, tensor in values:
        if tensor.is_floating_point() and not key.endswith(_NEVER_READ):
            parameters += 1
            if not torch.isfinite(tensor).all():
                diverged.append(key)
    if diverged:
        raise UserError(
            f"{name} holds NaN or infinite values in {len(diverged)} of its {parameters} parameters, the first of them "
            f"{diverged[0]}: its training diverged; give an earlier checkpoint"
        )


def options_in(state: Mapping[str, Any], part: str = "model") -> dict[str, Any]:
    """Return the options of a group such as "model" in a checkpoint: those in ``cfg`` or, in older files, ``args``."""
    cfg = state.get("cfg") or {part: state.get("args")}  # args has the options of all groups together
    options = cfg.get(part) if isinstance(cfg, Mapping) else None
    options = vars(options) if isinstance(options, Namespace) else options
    return dict(options) if isinstance(options, Mapping) else {}


def forget_initial_values(options: Any) -> None:
    """Remove the files of embeddings from a model's options: its checkpoint has the trained embeddings."""
    for name in EMBEDDING_OPTIONS:
        if getattr(options, name, None):
            setattr(options, name, None)


def updates_in(state: Mapping[str, Any]) -> int:
    """Return the number of updates that the model in a checkpoint was trained for."""
    # One entry for each run that the training was resumed in; the last one is of the present run.
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Save with ``torch.save`` to a file that appears whole or not at all."""
    with atomic_write(path) as file:
        torch.save(state, file)
