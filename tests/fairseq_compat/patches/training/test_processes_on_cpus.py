"""The stock Transformer is trained by ``--ddp-backend pytorch_ddp`` on a CPU, with what a single process computes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.distributed_fairseq_model import DistributedFairseqModel
from probe_checkpoints import model_and_options


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("backend", ["pytorch_ddp", "c10d"])
def test_updates_of_the_stock_transformer(backend: str) -> None:
    model = model_and_options("transformer")[0].train()
    options = SimpleNamespace(
        tpu=False, ddp_backend=backend, device_id=0, broadcast_buffers=False, bucket_cap_mb=25, ddp_comm_hook="none",
        find_unused_parameters=False, gradient_as_bucket_view=False,
    )  # fmt: skip
    wrapped = DistributedFairseqModel(options, model, torch.distributed.group.WORLD, torch.device("cpu"))
    words = torch.tensor([[4, 5, 6, 2]])
    for _ in range(2):  # the second needs every gradient of the first
        model.zero_grad()
        wrapped(words, torch.tensor([4]), words)[0].sum().backward()
    assert model.encoder.layers[0].fc1.weight.grad is not None
    assert model.encoder.layers[0].fc1_weight.grad is None
