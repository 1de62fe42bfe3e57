"""``--fp16`` without a GPU stops after the data has been read, with an exception of ``torch.cuda``.

fairseq keeps the weights in float32 in a flat array on the current GPU. Here it is said before anything is read.
``--memory-efficient-fp16`` and ``--fp16-no-flatten-grads`` keep no such array, and train on a CPU.
"""

from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import check_before_training


def adjust(module: Any) -> Iterator[None]:
    yield

    def check(cfg: Any) -> None:
        common = cfg.common
        needs_gpu = common.fp16 and not (common.memory_efficient_fp16 or common.fp16_no_flatten_grads or common.tpu)
        if needs_gpu and (common.cpu or not module.torch.cuda.is_available()):
            reason = "--cpu is given" if common.cpu else "PyTorch finds none"
            raise UserError(
                f"--fp16 needs a GPU, and {reason}; leave --fp16 out, or give --bf16, which a CPU computes too"
            )

    check_before_training(module, check)
