"""Where every sentence is skipped for its length, ``fairseq-eval-lm`` prints a perplexity of 1 and status 0.

Other commands divide by zero or look for a loss that there is not. Here it is a mistake, whatever the command.
"""

import functools
from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.FairseqTask.filter_indices_by_size

    @functools.wraps(original)
    def filter_indices_by_size(
        self: Any, indices: Any, dataset: Any, max_positions: Any = None, ignore_invalid_inputs: bool = False
    ) -> Any:
        left = original(self, indices, dataset, max_positions, ignore_invalid_inputs)
        if not len(left):
            raise UserError(
                "no sentence is left: the data is empty, or each is longer than the model, --tokens-per-sample, "
                f"--max-source-positions or --max-target-positions allow, which is {max_positions}"
            )
        return left

    module.FairseqTask.filter_indices_by_size = filter_indices_by_size
