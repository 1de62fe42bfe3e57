"""The warnings that fairseq's users cannot act on are silent, and only those."""

from __future__ import annotations

import argparse
import warnings
from types import ModuleType

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_compat import import_hook
from fairseq_compat.patches.options.known_warnings import adjust

OTHERS = ("'num_workers' argument is unwise", "torch.meshgrid is going to change")


def cause_warnings() -> None:
    """Make the calls that fairseq makes; on new releases of PyTorch some warn no longer."""
    list(torch.utils.data.DataLoader([torch.zeros(1)], pin_memory=True))
    with torch.cuda.amp.autocast(enabled=False):
        pass
    query = torch.zeros(2, 1, 4)
    torch.nn.functional.multi_head_attention_forward(
        query, query, query, 4, 2, torch.zeros(12, 4), torch.zeros(12), None, None, False, 0.0, torch.zeros(4, 4),
        torch.zeros(4), key_padding_mask=torch.zeros(1, 2, dtype=torch.bool), attn_mask=torch.zeros(2, 2),
    )  # fmt: skip
    torch.FloatStorage(1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
    convert_namespace_to_omegaconf(argparse.Namespace(arch="transformer", task="translation", data="data-bin"))
    for text in OTHERS:
        warnings.warn(text, UserWarning, stacklevel=1)


def test_only_the_known_warnings_are_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.storage, "_always_warn_typed_storage_removal", True)  # else once in a process
    assert "known_warnings" in import_hook.PATCHES["fairseq"]
    messages = []
    for patched in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in adjust(ModuleType("fairseq")) if patched else ():
                pass
            cause_warnings()
        messages.append([str(one.message) for one in caught])
    loud, quiet = messages
    # That they are there to be silenced: at least those of all supported releases of PyTorch.
    for text in ("torch.cuda.amp.autocast", "TypedStorage", "lr_scheduler.step", "no longer experimental", *OTHERS):
        assert any(text in message for message in loud), text
    assert quiet == list(OTHERS)
