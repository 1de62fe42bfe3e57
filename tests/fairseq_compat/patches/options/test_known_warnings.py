"""The warnings that fairseq's users cannot act on are silent, and only those."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

#: Causes each of the known warnings by the call that fairseq makes; on new releases of PyTorch some are gone.
CALLS = """
import sys, warnings
import torch
if sys.argv[1] == "with fairseq":
    import fairseq
list(torch.utils.data.DataLoader([torch.zeros(1)], pin_memory=True))
with torch.cuda.amp.autocast(enabled=False):
    pass
query = torch.zeros(2, 1, 4)
torch.nn.functional.multi_head_attention_forward(
    query, query, query, 4, 2, torch.zeros(12, 4), torch.zeros(12), None, None, False, 0.0, torch.zeros(4, 4),
    torch.zeros(4), key_padding_mask=torch.zeros(1, 2, dtype=torch.bool), attn_mask=torch.zeros(2, 2),
)
torch.FloatStorage(1)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
warnings.warn("'num_workers' argument is unwise", UserWarning)
warnings.warn("torch.meshgrid is going to change", FutureWarning)
"""

KNOWN = (
    "'pin_memory' argument",
    "torch.cuda.amp.autocast",
    "Support for mismatched",
    "TypedStorage",
    "lr_scheduler.step",
)

#: What every command does with its options.
COMPOSE = """
import argparse, warnings
import fairseq
if {unfiltered}:
    warnings.simplefilter("default")
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
convert_namespace_to_omegaconf(argparse.Namespace(arch="transformer", task="translation", data="data-bin"))
"""


def test_only_the_known_warnings_are_silenced(run_python: Callable[..., CompletedProcess[str]]) -> None:
    loud, quiet = (run_python(CALLS, name) for name in ("without fairseq", "with fairseq"))
    assert loud.returncode == quiet.returncode == 0, loud.stderr + quiet.stderr
    # That they are there to be silenced: at least those of all supported releases of PyTorch.
    for text in ("torch.cuda.amp.autocast", "TypedStorage", "lr_scheduler.step"):
        assert text in loud.stderr
    for text in KNOWN:
        assert text not in quiet.stderr
    for text in ("'num_workers' argument is unwise", "torch.meshgrid is going to change"):
        assert text in loud.stderr
        assert text in quiet.stderr


def test_composing_the_options_says_nothing_of_hydra(run_python: Callable[..., CompletedProcess[str]]) -> None:
    loud, quiet = (run_python(COMPOSE.format(unfiltered=unfiltered)) for unfiltered in (True, False))
    assert loud.returncode == quiet.returncode == 0, loud.stderr + quiet.stderr
    assert "no longer experimental" in loud.stderr
    assert "Warning" not in quiet.stderr
