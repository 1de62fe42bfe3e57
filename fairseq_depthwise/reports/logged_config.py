"""fairseq's configuration in a log: the text of a dictionary, which has a Namespace for options of older tasks."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

#: Groups of options that define the model and its training, and the option that chooses among each.
_CHOICES = {
    "model": "--arch",
    "task": "--task",
    "criterion": "--criterion",
    "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}

#: Options of other groups that change what is learned or how fast.
_OTHERS = {
    "common": ("seed", "fp16", "bf16", "amp", "cpu"),
    "distributed_training": ("distributed_world_size",),
    "dataset": ("max_tokens", "batch_size", "valid_subset"),
    "optimization": ("max_epoch", "max_update", "clip_norm", "sentence_avg", "update_freq", "lr"),
    "checkpoint": ("restore_file", "finetune_from_model", "best_checkpoint_metric"),
}


def parse_config(text: str) -> dict[str, Any]:
    """Parse the configuration in a line of the log; return {} if the text is something else or truncated.

    Nothing is executed: names other than nan and inf, and calls other than ``Namespace(...)``, stay text.
    """
    try:
        config = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    if not isinstance(config, dict):
        return {}
    if "common" in config:
        # A group is a dictionary; a choice may be a name alone.
        return {group: values for group, values in config.items() if group in _CHOICES or isinstance(values, dict)}
    # The Namespace of older releases has all options in one.
    return {"model": {"_name": config["arch"], **config}} if "arch" in config else {}


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return option -> value as text, of the options that define the model and its training and are set."""
    options: dict[str, str] = {}
    for group, choice in _CHOICES.items():
        values = config.get(group)
        if not isinstance(values, Mapping):
            values = {"_name": values}
        for name, value in {"_name": None, **values}.items():
            _add(options, choice if name == "_name" else _as_option(name), value)
    for group, names in _OTHERS.items():
        for name in names:
            _add(options, _as_option(name), (config.get(group) or {}).get(name))
    return options


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_value(key)): _value(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element) for element in node.elts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Namespace":
        return {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _value(node.operand)
        return -number if isinstance(number, int | float) else ast.unparse(node)
    if isinstance(node, ast.Name) and node.id in ("nan", "inf"):
        return getattr(math, node.id)
    return ast.unparse(node)


def _as_option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add(options: dict[str, str], option: str, value: Any) -> None:
    if value is None or value is False or value in ("", []) or option in options:
        return
    options[option] = ",".join(map(str, value)) if isinstance(value, list) else "on" if value is True else str(value)
