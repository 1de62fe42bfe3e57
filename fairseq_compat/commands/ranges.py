"""Numbers of fairseq's options that fill the memory, start programs without end, or never end: the one table of them.

Whatever else makes no sense ends in an error of fairseq or PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairseq_compat.errors import UserError

#: Name of an option, as in a configuration -> its lowest and its highest value.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("max_tokens", "max_tokens_valid", "batch_size", "batch_size_valid"), (1, math.inf)),
    **dict.fromkeys(("required_batch_size_multiple", "required_seq_len_multiple", "update_freq"), (1, math.inf)),
    "num_workers": (0, 1024),
    "data_buffer_size": (0, math.inf),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), (0, 10_000)),
    **dict.fromkeys(("beam", "nbest"), (1, 10_000)),
    "lr": (0, math.inf),
}


def check_number(name: str, value: Any) -> None:
    """Check the value of an option, or each of several; what is no number is left alone.

    Raises:
        UserError: it is out of range, or not finite.
    """
    lowest, highest = RANGES.get(name, (-math.inf, math.inf))
    for number in value if isinstance(value, (list, tuple)) else [value]:
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            continue
        if not lowest <= number <= highest or abs(number) == math.inf or number != number:
            option = "--" + name.replace("_", "-")
            limits = f"{lowest} to {highest}" if name in RANGES else "finite"
            raise UserError(f"{option} {number} is out of range; it must be {limits}")


def check_options(options: Mapping[str, Any]) -> None:
    """Check all options of a command: name -> value, as in a configuration.

    Raises:
        UserError: as :func:`check_number`.
    """
    for name, value in options.items():
        check_number(name, value)
