"""A resumed run forgets how many validations in a row were no better, so ``--patience`` stops it later than planned.

fairseq counts them in attributes of ``should_stop_early``, which end with the process. Here a checkpoint has them in
its ``extra_state``, and a resumed run goes on counting; as with the best score, not after ``--reset-meters`` or
``--reset-optimizer``.
"""

import functools
import sys
from collections.abc import Iterator
from typing import Any

_ENTRY = "patience"
_COUNTS = ("best", "num_runs")


def adjust(module: Any) -> Iterator[None]:
    yield

    original_state, original_load = module.Trainer.state_dict, module.Trainer.load_checkpoint

    @functools.wraps(original_state)
    def state_dict(self: Any) -> dict[str, Any]:
        state: dict[str, Any] = original_state(self)
        early_stop = _early_stop()
        counts = {} if early_stop is None else vars(early_stop)
        if all(name in counts for name in _COUNTS):
            state["extra_state"][_ENTRY] = {name: counts[name] for name in _COUNTS}
        return state

    @functools.wraps(original_load)
    def load_checkpoint(
        self: Any,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None,
        reset_meters: bool = False,
    ) -> Any:
        extra_state = original_load(
            self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters
        )
        counts = (extra_state or {}).get(_ENTRY)
        if counts and not (reset_optimizer or reset_meters) and (early_stop := _early_stop()) is not None:
            vars(early_stop).update({name: counts[name] for name in _COUNTS})
        return extra_state

    module.Trainer.state_dict = state_dict
    module.Trainer.load_checkpoint = load_checkpoint


def _early_stop() -> Any:
    """Return the function of the running ``fairseq-train`` that counts; None in other programs."""
    return getattr(sys.modules.get("fairseq_cli.train"), "should_stop_early", None)
