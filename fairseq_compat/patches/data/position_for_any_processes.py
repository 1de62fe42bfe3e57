"""A run that goes on with another number of processes repeats or leaves out a part of the epoch, or is refused.

A checkpoint has the batches that each process took in the epoch; with twice as many processes that is twice as many
batches, or more than there are. Here it also has those of all processes, and a run takes its share of them.
"""

import functools
from collections.abc import Iterator
from typing import Any

#: Of an iterator's state: how many batches all processes took in the epoch.
BATCHES = "batches_in_epoch"


def adjust(module: Any) -> Iterator[None]:
    yield

    original_state, original_load = module.EpochBatchIterator.state_dict, module.EpochBatchIterator.load_state_dict

    @functools.wraps(original_state)
    def state_dict(self: Any) -> dict[str, Any]:
        state: dict[str, Any] = original_state(self)
        return {**state, BATCHES: state["iterations_in_epoch"] * self.num_shards}

    @functools.wraps(original_load)
    def load_state_dict(self: Any, state_dict: dict[str, Any]) -> None:
        if (taken := state_dict.get(BATCHES)) is not None:
            state_dict = {**state_dict, "iterations_in_epoch": taken // self.num_shards}
        original_load(self, state_dict)

    module.EpochBatchIterator.state_dict = state_dict
    module.EpochBatchIterator.load_state_dict = load_state_dict
