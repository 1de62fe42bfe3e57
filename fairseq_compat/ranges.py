"""Valid ranges of fairseq's numeric options: other numbers fill memory, start countless processes, or never end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairseq_compat.errors import UserError

_PROBABILITY = (0, 1)
_NOT_NEGATIVE = (0, math.inf)
_POSITIVE = (1, math.inf)

#: Option -> lowest and highest valid number. All numbers must be finite.
RANGES: dict[str, tuple[float, float]] = {
    # Batches and updates.
    "max_tokens": _POSITIVE,
    "max_tokens_valid": _POSITIVE,
    "batch_size": _POSITIVE,
    "batch_size_valid": _POSITIVE,
    "required_batch_size_multiple": _POSITIVE,
    "required_seq_len_multiple": _POSITIVE,
    "update_freq": _POSITIVE,
    "max_valid_steps": _POSITIVE,
    "max_update": _NOT_NEGATIVE,
    "validate_interval": _POSITIVE,
    "save_interval": _POSITIVE,
    "log_interval": _POSITIVE,
    "ema_decay": _PROBABILITY,
    "ema_update_freq": _POSITIVE,
    "num_workers": (0, 1024),
    "data_buffer_size": _NOT_NEGATIVE,
    "lr": _NOT_NEGATIVE,
    "seed": (0, 2**32 - 1),  # NumPy's range of seeds
    # Models and criterions.
    "encoder_layers": (0, 10_000),
    "decoder_layers": (0, 10_000),
    "dropout": _PROBABILITY,
    "attention_dropout": _PROBABILITY,
    "activation_dropout": _PROBABILITY,
    "relu_dropout": _PROBABILITY,
    "label_smoothing": _PROBABILITY,
    # Generation.
    "beam": (1, 10_000),
    "nbest": (1, 10_000),
    "max_len_a": _NOT_NEGATIVE,
    "max_len_b": _NOT_NEGATIVE,
    "min_len": _NOT_NEGATIVE,
    "prefix_size": _NOT_NEGATIVE,
    "no_repeat_ngram_size": _NOT_NEGATIVE,
    "iter_decode_max_iter": _NOT_NEGATIVE,
    "iter_decode_with_beam": (1, 10_000),
    "lenpen": (-1000, 1000),
    "unkpen": (-1e6, 1e6),
    "diversity_rate": (-1000, 1000),
    "diverse_beam_strength": (-1000, 1000),
    "lm_weight": (-1000, 1000),
}


def require_ranges(options: Mapping[str, Any], inside: str = "") -> None:
    """Raise UserError if an option has a number, or a list with a number, outside its range.

    ``inside``: the option whose value contains these options; empty for options on a command line.
    """
    for name, (lowest, highest) in RANGES.items():
        value = options.get(name)
        option = f"{inside} {name!r}" if inside else f"--{name.replace('_', '-')}"
        for number in value if isinstance(value, list) else [value]:
            if not isinstance(number, (int, float)):
                continue
            if not (lowest <= number <= highest and math.isfinite(number)):
                raise UserError(f"{option} {number} is out of range: {lowest} to {highest}, finite")
