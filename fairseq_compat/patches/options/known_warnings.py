"""Every log starts with warnings about calls inside fairseq that its users cannot change.

Exactly the messages below are silenced; all others are shown as before.
"""

import logging
import warnings
from collections.abc import Iterator
from types import ModuleType

#: Beginning of the message (a regular expression) and its category.
KNOWN: tuple[tuple[str, type[Warning]], ...] = (
    # DataLoader is asked to pin memory whether or not there is a device to pin it for.
    (r"'pin_memory' argument is set as true but", UserWarning),
    # fairseq.trainer and fairseq.tasks use the older spelling of torch.amp.autocast("cuda").
    (r"`torch\.cuda\.amp\.autocast\(.*\)` is deprecated", FutureWarning),
    # The stock attention gives a float causal mask together with a boolean padding mask.
    (r"Support for mismatched (src_)?key_padding_mask and (attn_)?mask is deprecated", UserWarning),
    # Saving a tensor as a typed storage, in Dictionary and dataset code of fairseq.
    (r"TypedStorage is deprecated", UserWarning),
    # fairseq.optim.lr_scheduler steps before the first optimizer step by design.
    (r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`", UserWarning),
    # --ddp-backend pytorch_ddp is made with an argument that PyTorch 2.13 has renamed.
    (r"`broadcast_buffers` is deprecated", FutureWarning),
    # Every command composes its configuration in the way of hydra 1.0, which hydra 1.3 still understands.
    (r"\s*hydra\.experimental\.\w+\(\) is no longer experimental", UserWarning),
    (r"\s*The version_base parameter is not specified", UserWarning),
    (r"\s*The strict flag in the compose API is deprecated", UserWarning),
    (r"\s*In '.*': Usage of deprecated keyword in package header", UserWarning),
    (r"\s*'.*' is validated against ConfigStore schema with the same name", UserWarning),
)

#: fairseq logs this at every start, whatever the task.
TENSORBOARD_ADVICE = "Please install tensorboardX"


def adjust(module: ModuleType) -> Iterator[None]:
    for message, category in KNOWN:
        warnings.filterwarnings("ignore", message=message, category=category)
    logging.getLogger("fairseq.tasks.text_to_speech").addFilter(
        lambda record: not str(record.msg).startswith(TENSORBOARD_ADVICE)
    )
    yield
