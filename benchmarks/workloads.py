"""What benchmarks let models do: train and translate the same sentences through fairseq's own trainer and search.

Nothing here knows which models are compared. A :class:`Side` is an architecture with its options; a workload
(:class:`Training`, :class:`Decoding`) is built for one side and called with one batch.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import options as fairseq_options
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from fairseq_compat import UserError

#: A batch as fairseq's datasets make it.
Batch = dict[str, Any]

#: Precision -> the type that a model is cast to.
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

BEAM = 4

#: fairseq's training options that both sides share.
RECIPE = (
    "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--dropout", "0.1",
    "--share-all-embeddings", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--lr", "5e-4",
    "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000", "--distributed-world-size", "1",
)  # fmt: skip


# --- sentences ---------------------------------------------------------------------------------------------------


def dictionary_of(size: int) -> Dictionary:
    """Return a dictionary with ``size`` entries, fairseq's four special ones included."""
    dictionary = Dictionary()
    for number in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def corpus(dictionary: Dictionary, sentences: int) -> LanguagePairDataset:
    """Return sentence pairs of random subwords whose lengths are like those of newstest, always the same."""
    chance = random.Random(1)
    generator = torch.Generator().manual_seed(1)
    sources: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    for _ in range(sentences):
        length = 25 * chance.lognormvariate(0, 0.5)
        for side, subwords in ((sources, length), (targets, length * chance.lognormvariate(0, 0.15))):
            count = min(80, max(5, round(subwords)))
            tokens = torch.randint(dictionary.nspecial, len(dictionary), (count + 1,), generator=generator)
            tokens[-1] = dictionary.eos()
            side.append(tokens)
    sizes = [[len(tokens) for tokens in side] for side in (sources, targets)]
    return LanguagePairDataset(sources, sizes[0], dictionary, targets, sizes[1], dictionary, shuffle=False)


def corpus_of_length(dictionary: Dictionary, length: int, sentences: int) -> LanguagePairDataset:
    """Return sentence pairs of random subwords, all with ``length`` tokens on both sides, their end included."""
    generator = torch.Generator().manual_seed(1)
    sides = []
    for _ in range(2):
        tokens = torch.randint(dictionary.nspecial, len(dictionary), (sentences, length), generator=generator)
        tokens[:, -1] = dictionary.eos()
        sides.append(list(tokens))
    sizes = [length] * sentences
    return LanguagePairDataset(sides[0], sizes, dictionary, sides[1], sizes, dictionary, shuffle=False)


def training_batches(dataset: LanguagePairDataset, tokens: int, number: int) -> list[Batch]:
    """Return ``number`` batches of about ``tokens`` target tokens, short sentences to long ones."""
    groups: list[list[int]] = [[]]
    filled = 0
    for index in dataset.ordered_indices():
        length = int(dataset.tgt_sizes[index])
        if groups[-1] and filled + length > tokens:
            groups.append([])
            filled = 0
        groups[-1].append(int(index))
        filled += length
    return _spread(dataset, groups[:-1] or groups, number)  # the last one is what was left over


def decoding_batches(dataset: LanguagePairDataset, sentences: int, number: int) -> list[Batch]:
    """Return ``number`` batches of ``sentences`` sentences of like length, short ones to long ones."""
    order = [int(index) for index in dataset.ordered_indices()]
    groups = [order[begin : begin + sentences] for begin in range(0, len(order) - sentences + 1, sentences)]
    return _spread(dataset, groups, number)


def _spread(dataset: LanguagePairDataset, groups: Sequence[Sequence[int]], number: int) -> list[Batch]:
    """Return ``number`` of the groups at even distances, collated by fairseq: sources padded left, targets right."""
    chosen = [groups[(2 * place + 1) * len(groups) // (2 * number)] for place in range(number)]
    return [dataset.collater([dataset[index] for index in group]) for group in chosen]


def on_device(batches: list[Batch], device: str) -> list[Batch]:
    """Move batches to the device."""
    return [utils.move_to_cuda(batch) for batch in batches] if device == "cuda" else batches


# --- models ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the compared models: fairseq's architecture and further options."""

    arch: str
    options: tuple[str, ...] = ()

    def configuration(self, device: str, *, bf16: bool = False) -> Any:
        """Return fairseq's configuration of a training run.

        Raises:
            UserError: fairseq does not know an option or refuses its value.
        """

        def refuse(message: str) -> None:
            raise UserError(f"fairseq refuses the options of {self.arch}: {message}")

        parser = fairseq_options.get_training_parser()
        parser.error = refuse  # fairseq would print its several hundred options and end the process
        given = ["no data is read", "--arch", self.arch, *RECIPE, "--max-tokens", "4096"]
        given += ["--save-dir", tempfile.gettempdir()]  # where fairseq writes crash.pt when a step fails
        given += [*(["--cpu"] if device == "cpu" else []), *(["--bf16"] if bf16 else []), *self.options]
        return convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, given))


class Training:
    """Training steps of one side through fairseq's Trainer: called with a batch, it makes one update."""

    def __init__(self, side: Side, dictionary: Dictionary, device: str, precision: str) -> None:
        torch.manual_seed(1)
        cfg = side.configuration(device, bf16=precision == "bf16")
        task = TranslationTask(cfg.task, dictionary, dictionary)
        self.trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
        self.trainer.cuda_env = None  # else every step ends with a reset of PyTorch's peak of memory
        self.trainer.begin_epoch(1)

    def __call__(self, batch: Batch) -> None:
        # Out of memory, fairseq warns, returns None and wants to go on with the next batch.
        if self.trainer.train_step([batch]) is None:
            raise UserError("the device has too little memory for a training step; give a lower --train-tokens")

    def unused_bytes(self) -> int:
        """Return the bytes of :func:`unused_copies` after a step, those of their gradients and moments included."""
        unused = {id(parameter) for parameter in unused_copies(self.trainer.model)}
        optimizer = self.trainer.optimizer
        tensors = [parameter for parameter in self.trainer.model.parameters() if id(parameter) in unused]
        # In bf16 each parameter has a float32 twin, to whose gradient fairseq gives zeros where there is none.
        pairs = zip(getattr(optimizer, "fp16_params", ()), getattr(optimizer, "fp32_params", ()), strict=True)
        tensors += [twin for parameter, twin in pairs if id(parameter) in unused]
        states = optimizer.optimizer.state
        tensors += [value for tensor in tuple(tensors) for value in (tensor.grad, *states.get(tensor, {}).values())]
        return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


class Decoding:
    """Beam search of one side through fairseq's generator: called with a batch and a beam, it translates the batch.

    Every sentence is made exactly as long as its batch's sources are with their padding, and so every side does the
    same number of steps with the same number of rows, whatever an untrained model thinks of the end of a sentence.
    ``steps`` has an entry for each call: how often the decoder ran.
    """

    def __init__(self, side: Side, dictionary: Dictionary, device: str, precision: str) -> None:
        torch.manual_seed(1)
        cfg = side.configuration(device)
        self.task = TranslationTask(cfg.task, dictionary, dictionary)
        self.model = self.task.build_model(cfg.model).to(device=device, dtype=TYPES.get(precision))
        self.model.prepare_for_inference_(cfg)  # afterwards the model's eval() is fairseq's and returns None
        self.generators: dict[int, Any] = {}
        self.steps: list[int] = []

    def __call__(self, batch: Batch, beam: int = BEAM) -> None:
        if beam not in self.generators:
            self.generators[beam] = self._generator(beam)
        self.steps.append(0)
        self.generators[beam].min_len = batch["net_input"]["src_tokens"].size(1)
        self.task.inference_step(self.generators[beam], [self.model], batch)

    def _generator(self, beam: int) -> Any:
        """Return fairseq's search with so many beams, which counts the decoder's steps."""
        settings = argparse.Namespace(beam=beam, max_len_a=1, max_len_b=0, min_len=1)
        generator = self.task.build_generator([self.model], settings)
        run_decoder = generator.model.forward_decoder

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.steps[-1] += 1
            return run_decoder(*args, **kwargs)

        generator.model.forward_decoder = counted
        return generator

    def encode(self, batch: Batch) -> None:
        """Run the encoder alone."""
        with torch.no_grad():
            self.model.encoder(batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"])

    def unused_bytes(self) -> int:
        """Return the bytes of :func:`unused_copies`."""
        return sum(parameter.nbytes for parameter in unused_copies(self.model))


def unused_copies(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the second copy of its weights that every encoder layer of stock fairseq registers and never reads.

    The weights that it computes with belong to the modules within the layer, only the copies to the layer itself.
    """
    layers = (layer for layer in model.modules() if isinstance(layer, TransformerEncoderLayerBase))
    return [parameter for layer in layers for parameter in layer.parameters(recurse=False)]
