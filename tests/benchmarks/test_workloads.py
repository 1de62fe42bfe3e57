"""What the benchmarks compare: fairseq's models without their dead weights, sentences of one length."""

from __future__ import annotations

import pytest
from bench_rows import ROWS, SIZES
from workloads import (
    Decoding,
    Side,
    Training,
    corpus_of_length,
    decoding_batches,
    dictionary_of,
    training_batches,
    unused_copies,
)

import fairseq_depthwise  # noqa: F401  # registers the models

SIZE = SIZES["tiny"]


def training_of(name: str, precision: str) -> Training:
    """The row after an update."""
    row = ROWS[name]
    dictionary = dictionary_of(SIZE.vocabulary)
    work = Training(Side(row.arch, row.options(SIZE)), dictionary, "cpu", precision)
    work(training_batches(corpus_of_length(dictionary, 6, 4), 24, 1)[0])
    return work


class TestUnusedCopies:
    def test_they_are_the_parameters_without_gradient(self) -> None:
        model = training_of("stock 6", "fp32").trainer.model
        copies = unused_copies(model)
        assert {id(copy) for copy in copies} == {id(weight) for weight in model.parameters() if weight.grad is None}

    # In bf16: 2 bytes, and 4 each for the float32 twin, its gradient and Adam's two moments.
    @pytest.mark.parametrize(("precision", "bytes_each"), [("fp32", 4), ("bf16", 18)])
    def test_their_memory_in_training(self, precision: str, bytes_each: int) -> None:
        work = training_of("stock 6", precision)
        copies = sum(parameter.numel() for parameter in unused_copies(work.trainer.model))
        assert work.unused_bytes() == bytes_each * copies

    @pytest.mark.parametrize("name", ["depth-wise", "mute 2", "sdt 6"])
    def test_ours_have_none(self, name: str) -> None:
        assert training_of(name, "fp32").unused_bytes() == 0


def test_beams_share_a_model_and_count_their_steps() -> None:
    dictionary = dictionary_of(SIZE.vocabulary)
    row = ROWS["depth-wise"]
    work = Decoding(Side(row.arch, row.options(SIZE)), dictionary, "cpu", "fp32")
    (batch,) = decoding_batches(corpus_of_length(dictionary, 7, 2), 2, 1)
    work(batch)
    work(batch, 1)
    assert {beam: generator.beam_size for beam, generator in work.generators.items()} == {4: 4, 1: 1}
    assert work.steps == [8, 8]


def test_sentences_of_one_length() -> None:
    dictionary = dictionary_of(30)
    (batch,) = decoding_batches(corpus_of_length(dictionary, 9, 5), 5, 1)
    for tokens in (batch["net_input"]["src_tokens"], batch["target"]):
        assert tokens.shape == (5, 9)
        assert tokens[:, -1].eq(dictionary.eos()).all()
        assert tokens[:, :-1].ge(dictionary.nspecial).all()
