"""Errors in one sentence: which are mistakes of the user, and which need their traceback."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from fairseq import models
from fairseq.data.data_utils import numpy_seed
from fairseq.distributed.utils import _infer_single_node_init
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf
from tiny_models import dictionary_of

from fairseq_compat.errors import mistake


def assertion() -> None:
    _infer_single_node_init(SimpleNamespace(distributed_world_size=99))


def contradiction() -> None:
    task = SimpleNamespace(source_dictionary=dictionary_of(8), target_dictionary=dictionary_of(9))
    TransformerModel.build_model(Namespace(share_all_embeddings=True), task)


def architecture() -> None:
    models.build_model(Namespace(arch="transformer_tinny"), None)


def missing_value() -> None:
    OmegaConf.create({"model_path": "???"}).model_path  # noqa: B018  # it raises


def call_of_numpy() -> None:
    with numpy_seed(-1):
        pass


def assertion_elsewhere() -> None:
    raise AssertionError("of another program")


@pytest.mark.parametrize(
    ("fail", "sentence"),
    [
        (assertion, "world size is 99"),
        (contradiction, "--share-all-embeddings"),
        (architecture, "transformer_tinny"),
        (missing_value, "--model-path"),
        (call_of_numpy, None),
        (assertion_elsewhere, None),
    ],
)
def test_checks_of_fairseq_are_mistakes(fail: Callable[[], None], sentence: str | None) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # each its own
        fail()
    result = mistake(raised.value)
    assert result is None if sentence is None else sentence in str(result)
