"""Patches of lexical constraints: which are refused, and to which text each belongs."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.token_generation_constraints import pack_constraints
from fairseq_cli import interactive
from omegaconf import OmegaConf

from fairseq_compat import UserError
from fairseq_compat.patches.constraints import refuse_impossible_constraints


def dictionary_of(*symbols: str) -> Dictionary:
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


def read(line: str) -> list[Any]:
    """Return the constraints of a line as a task is given them, unpacked."""
    asked: list[Any] = []

    def dataset(tokens: Any, lengths: Any, constraints: Any) -> None:
        asked.extend(constraints[0].tolist())

    task = SimpleNamespace(
        target_dictionary=dictionary_of("a", "b", "c"),
        get_interactive_tokens_and_lengths=lambda lines, encode: (None, None),
        build_dataset_for_inference=dataset,
        get_batch_iterator=lambda **options: SimpleNamespace(next_epoch_itr=lambda shuffle: []),
    )
    cfg = SimpleNamespace(
        generation=SimpleNamespace(constraints="ordered"),
        dataset=SimpleNamespace(max_tokens=None, batch_size=1, skip_invalid_size_inputs_valid_test=False),
    )
    list(interactive.make_batches([line], cfg, task, None, lambda text: text))
    return asked


def test_an_empty_constraint_is_none() -> None:
    assert read("x\ta b\t\t \tc") == read("x\ta b\tc") == [2, 4, 5, 0, 6, 0]
    assert read("x\t") == [0]


@pytest.mark.parametrize("word", ["new", "<unk>", "</s>", "<s>", "<pad>"])
def test_a_word_that_no_translation_can_have_is_refused(word: str) -> None:
    with pytest.raises(UserError, match=f"^--constraints: '{word}'"):
        read(f"x\ta\tb {word}")


@pytest.mark.parametrize("beam", [2, 3, 4])
def test_a_beam_that_is_too_large_is_refused(beam: int) -> None:
    dictionary = dictionary_of("a", "b", "c")
    generator = SimpleNamespace(beam_size=beam, tgt_dict=dictionary, eos=dictionary.eos(), pad=dictionary.pad())
    generator.max_len_a, generator.max_len_b, generator.max_len = 0, 10, 20
    sample = {"net_input": {"src_tokens": torch.ones(1, 3)}}
    constraints = pack_constraints([[torch.tensor([4])]])
    with pytest.raises(UserError, match=f"--beam {beam}") if beam == 4 else nullcontext():
        refuse_impossible_constraints(generator, sample, constraints)


class Hub(GeneratorHubInterface):
    """Translates every text into its constraints, in batches that begin with the longest text."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.register_buffer("_float_tensor", torch.zeros(1))
        self.cfg = SimpleNamespace(generation=OmegaConf.structured(GenerationConfig))
        self.task: Any = SimpleNamespace(
            build_generator=lambda *args, **kwargs: None,
            inference_step=lambda generator, models, batch, constraints=None: [[row] for row in constraints],
        )
        self.models = torch.nn.ModuleList()

    def _build_batches(self, tokens: Any, skip_invalid_size_inputs: bool) -> Any:
        yield {"id": torch.tensor(sorted(range(len(tokens)), key=lambda number: -len(tokens[number])))}


def test_each_text_has_its_own_constraints() -> None:
    texts = [torch.ones(length) for length in (2, 5, 3)]
    constraints = pack_constraints([[torch.tensor([number])] for number in (7, 8, 9)])
    asked = {"constraints": constraints}
    together = Hub().generate(texts, inference_step_args=asked)
    assert [int(hypotheses[0][1]) for hypotheses in together] == [7, 8, 9]
    assert int(Hub().generate(texts[0], inference_step_args=asked)[0][1]) == 7
