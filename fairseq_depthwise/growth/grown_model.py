"""Making a model deeper where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fairseq_depthwise.growth.parameter_sources import Growth, SourcesOfSides
from fairseq_depthwise.modules.stack import SIDES


def grow_model(
    model: nn.Module,
    build: Callable[[], nn.Module],
    sources: SourcesOfSides,
    seed: int = 1,
    *,
    init: str = "copy",
) -> Growth:
    """Make ``model``, an encoder-decoder, as deep as what ``build`` returns, and give it its own parameters.

    The object stays the same, so that whoever holds it decodes and trains the deep model; its encoder and its decoder
    are replaced. Type, device and mode stay. New layers are those of a new model, drawn from ``seed`` in float32.
    """
    with drawing_from(seed):
        grown = build().to(next(model.parameters()))
    values = model.state_dict()
    growth = Growth(grown, values, sources, init)
    taken = growth.grow(values)
    for name, parameter in grown.named_parameters():
        parameter.data = taken[name]
    # Also tables that no checkpoint keeps: another device would compute slightly other positions.
    tables = dict(model.named_buffers())
    for name, table in grown.named_buffers():
        if (source := growth.source(name, tables)) is not None:
            table.data = tables[source].clone()
    grown.train(model.training)
    for side in SIDES:
        setattr(model, side, getattr(grown, side))
    return growth


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Draw random values from ``seed`` within it, on the CPU; the process's own generator stays where it is."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed % 2**63)
        yield
