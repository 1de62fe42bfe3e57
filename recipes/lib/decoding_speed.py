"""Measures how fast a trained system decodes: evaluate.sh RECIPE SYSTEM --speed.

The system and its baseline translate the first test set, sorted by length, in turns. What is timed is the beam search
alone: models are loaded, and batches are on the device, before. Settings are the papers' where they name them. The
depth-wise LSTM's: one GPU, fp16, beam 4, sorted by source length; no batch. Multi-unit's Figure 2 (b): a GPU, beam 4,
30 sentences a batch, the validation set of NIST, which is the recipe's first test set; no precision.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from evaluate import averaged_name, baselines_of, checkpoint_of, with_average, write_json
from fairseq import checkpoint_utils, tasks, utils
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from recipe_step import languages_of, run_folder, say, seeds_of, whole_number
from result_tables import NOTHING, filled_table
from systems import System

from fairseq_compat import UserError
from fairseq_compat.process import processor_facts
from fairseq_depthwise.evaluation.translations import read_lines
from recipes import RECIPES, system_of

#: Of ``PRECISION``.
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

#: Figure 2 (b) of the paper on multi-unit Transformers.
MULTI_UNIT_BATCH = 30

#: Recipe -> system -> what its paper measured: sentences/s on an RTX 4090 (Tables 2, 3, 4 and 6), tokens/s on a GPU.
PUBLISHED: dict[str, dict[str, str]] = {
    "wmt14_en_de": {
        name: f"{speed} sentences/s"
        for name, speed in {
            "transformer_3l": 1209.62,
            "transformer_base": 750.58,
            "transformer_12l": 429.00,
            "transformer_18l": 299.81,
            "transformer_24l": 229.90,
            "depthwise_lstm_3l": 1121.16,
            "depthwise_lstm_6l": 674.96,
            "depthwise_lstm_12l": 379.83,
            "depthwise_lstm_18l": 277.21,
            "depthwise_lstm_24l": 202.40,
            "depthwise_lstm_big_12l": 181.58,
            "depthwise_lstm_big_12l_6l": 316.15,
            "depthwise_lstm_big_12l_6l_1layer": 363.60,
            "depthwise_rnn": 737.60,
            "depthwise_lstm_1layer": 742.19,
            "depthwise_lstm_hidden1536": 683.67,
            "depthwise_lstm_concat": 649.27,
            "depthwise_lstm_two_cells": 581.13,
        }.items()
    },
    "nist_zh_en": {
        "mute_1u": "890 tokens/s",
        "mute": "863 tokens/s",
        "mute_6u": "830 tokens/s",
        "mute_big": "838 tokens/s",
    },
}


@dataclass(frozen=True)
class Settings:
    """How systems decode.

    Attributes:
        use_gpu: whether on a GPU.
        precision: one of TYPES.
        beam, length_penalty: of the search.
        max_tokens, batch_sentences: of a batch; None is no limit.
        rounds: how often each system translates.
    """

    use_gpu: bool
    precision: str
    beam: int
    length_penalty: float
    max_tokens: int | None
    batch_sentences: int | None
    rounds: int

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if self.use_gpu else "cpu")

    @property
    def batch(self) -> str:
        limits = []
        if self.batch_sentences:
            limits.append(f"{self.batch_sentences} sentences")
        if self.max_tokens:
            limits.append(f"{self.max_tokens} source tokens")
        return " and ".join(limits)


class Speed(NamedTuple):
    """What was decoded in a second of one round."""

    sentences: float
    tokens: float


def measure_speed(recipe_name: str, name: str) -> None:
    """Measure a system and its nearest baseline that is trained here, print their speeds and write them as JSON.

    Raises:
        UserError: the system is not trained, or the environment asks for what cannot be.
    """
    recipe, system = RECIPES[recipe_name], with_average(system_of(recipe_name, name))
    work = Path(os.environ["WORK"])
    if recipe.many:
        raise UserError(f"--speed is for recipes of one language pair, and {recipe_name} has many; leave it out")
    seeds = (os.environ.get("SEEDS") or os.environ.get("SEED") or "").split() or seeds_of(work, name)
    if not seeds:
        raise UserError(f"{work / 'systems'} has no {name}; train it first")
    settings = decoding_settings(system, recipe.beam, recipe.length_penalty)
    data = work / "data-bin"
    decoders = {
        label: _decoder(checkpoint, recipe.text_options(data), data, settings)
        for label, checkpoint in _checkpoints(recipe_name, name, system, seeds[0]).items()
    }
    speeds = _in_turns(decoders, settings.rounds)
    test = read_lines(str(data / "tests.txt"))[0]
    document = {
        "recipe": recipe_name,
        "system": name,
        "seed": seeds[0],
        "test": test,
        "device": _device_name(settings),
        "threads": torch.get_num_threads(),
        "precision": settings.precision,
        "beam": settings.beam,
        "length_penalty": settings.length_penalty,
        "max_tokens": settings.max_tokens,
        "batch_sentences": settings.batch_sentences,
        "sentences_per_second": {label: [speed.sentences for speed in rounds] for label, rounds in speeds.items()},
        "tokens_per_second": {label: [speed.tokens for speed in rounds] for label, rounds in speeds.items()},
    }
    write_json(work / "systems" / f"{name}{averaged_name()}.{test}.speed.json", document)
    threads = "1 thread" if document["threads"] == 1 else f"{document['threads']} threads"
    place = document["device"] if settings.use_gpu else f"{document['device']}, {threads}"
    print(f"{recipe_name}, {name}: {system.about}; {test} on {place}")
    print(f"{settings.precision}, beam {settings.beam}, lenpen {settings.length_penalty}, batches of {settings.batch}")
    print(f"\n{_table(speeds, PUBLISHED.get(recipe_name, {}))}")
    print(f"median (lowest-highest) of {settings.rounds} rounds, in turns; tokens: subwords and ends of sentences")


def decoding_settings(system: System, beam: int, length_penalty: float) -> Settings:
    """Return what the environment says, else what the system's paper does.

    Raises:
        UserError: a variable has an impossible value.
    """
    use_gpu = torch.cuda.is_available() and os.environ.get("GPUS") != "0"
    precision = os.environ.get("PRECISION") or ("fp16" if use_gpu else "fp32")
    if precision not in TYPES:
        raise UserError(f"PRECISION={precision} is not one of {', '.join(TYPES)}")
    if precision == "fp16" and not use_gpu:
        raise UserError("PRECISION=fp16 needs a GPU; fp32 and bf16 run on a CPU, too")
    max_tokens: int | None = None
    batch_sentences: int | None = None
    if os.environ.get("BATCH_SENTENCES"):
        batch_sentences = whole_number(os.environ, "BATCH_SENTENCES", MULTI_UNIT_BATCH)
    elif system.paper == "multi-unit" and not os.environ.get("MAX_TOKENS"):
        batch_sentences = MULTI_UNIT_BATCH
    if os.environ.get("MAX_TOKENS") or batch_sentences is None:
        max_tokens = whole_number(os.environ, "MAX_TOKENS", 4096)
    rounds = whole_number(os.environ, "ROUNDS", 5)
    return Settings(use_gpu, precision, beam, length_penalty, max_tokens, batch_sentences, rounds)


def _checkpoints(recipe: str, name: str, system: System, seed: str) -> dict[str, Path]:
    """Return what evaluation translates with, of a system and its nearest baseline that was trained with the seed."""
    checkpoints = {name: checkpoint_of(system, run_folder(os.environ, name, seed))}
    for baseline in baselines_of(recipe, system):
        folder = run_folder(os.environ, baseline, seed)
        if (folder / "checkpoints" / "checkpoint_last.pt").exists():
            checkpoints[baseline] = checkpoint_of(with_average(system_of(recipe, baseline)), folder)
            break
    return checkpoints


def _decoder(checkpoint: Path, text_options: Sequence[str], data: Path, settings: Settings) -> Callable[[], Speed]:
    """Return what translates the first test set with a model, as fairseq-generate does, and says how fast it was."""
    source, target = languages_of(data)
    words = [str(data), "--path", str(checkpoint), "--source-lang", source, "--target-lang", target, *text_options]
    words += ["--beam", str(settings.beam), "--lenpen", str(settings.length_penalty)]
    if settings.max_tokens:
        words += ["--max-tokens", str(settings.max_tokens)]
    if settings.batch_sentences:
        words += ["--batch-size", str(settings.batch_sentences)]
    if not settings.use_gpu:
        words += ["--cpu"]
    parsed = fairseq_options.parse_args_and_arch(fairseq_options.get_generation_parser(), words)
    cfg = convert_namespace_to_omegaconf(parsed)
    task = tasks.setup_task(cfg.task)
    # From here on as fairseq-generate does it, but that it casts to no other type than fp16.
    (model,), saved = checkpoint_utils.load_model_ensemble([str(checkpoint)], task=task)
    model.to(settings.device, TYPES[settings.precision])
    model.prepare_for_inference_(cfg)
    generator = task.build_generator([model], cfg.generation)
    batches = _batches(task, model, saved, settings)
    sentences = sum(batch["nsentences"] for batch in batches)
    say(f"{checkpoint}: {sentences} sentences in {len(batches)} batches")

    def decode() -> Speed:
        _wait(settings)
        begin, tokens = time.perf_counter(), 0
        for batch in batches:
            hypotheses = task.inference_step(generator, [model], batch)
            tokens += sum(len(best["tokens"]) for best, *_ in hypotheses)
        _wait(settings)
        seconds = time.perf_counter() - begin
        return Speed(sentences / seconds, tokens / seconds)

    return decode


def _batches(task: Any, model: Any, saved: Any, settings: Settings) -> list[dict[str, Any]]:
    """Return the batches of the first test set, which fairseq sorts by length, on the device."""
    task.load_dataset("test", task_cfg=saved.task)
    iterator = task.get_batch_iterator(
        dataset=task.dataset("test"),
        max_tokens=settings.max_tokens,
        max_sentences=settings.batch_sentences,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
    )
    batches = list(iterator.next_epoch_itr(shuffle=False))
    # Copying tokens to a GPU is not decoding.
    if settings.use_gpu:
        batches = [utils.move_to_cuda(batch) for batch in batches]
    return batches


def _wait(settings: Settings) -> None:
    """Wait until a GPU has computed what it was told to."""
    if settings.use_gpu:
        torch.cuda.synchronize()


def _in_turns(decoders: Mapping[str, Callable[[], Speed]], rounds: int) -> dict[str, list[Speed]]:
    """Return the speeds of each decoder by round, after a round that does not count.

    Every other round goes backwards, so that none always comes after the same other one.
    """
    speeds: dict[str, list[Speed]] = {name: [] for name in decoders}
    for number in range(rounds + 1):
        names = list(decoders)
        if number % 2 == 0:
            names.reverse()
        for name in names:
            speed = decoders[name]()
            if number > 0:  # the first round warms up
                speeds[name].append(speed)
    return speeds


def _table(speeds: Mapping[str, Sequence[Speed]], published: Mapping[str, str]) -> str:
    """Return the speeds, and the ratio of the first system to the second if there is one, taken within rounds."""
    rows = [["system", "sentences/s", "target tokens/s", "published"]]
    for name, rounds in speeds.items():
        sentences = _extent([speed.sentences for speed in rounds])
        tokens = _extent([speed.tokens for speed in rounds])
        rows.append([name, sentences, tokens, published.get(name, NOTHING)])
    if len(speeds) > 1:
        pairs = list(zip(*speeds.values(), strict=True))
        sentences = _extent([first.sentences / second.sentences for first, second in pairs], digits=3)
        tokens = _extent([first.tokens / second.tokens for first, second in pairs], digits=3)
        rows.append(["ratio", sentences, tokens, NOTHING])
    return filled_table(rows)


def _extent(values: Sequence[float], digits: int = 2) -> str:
    low, middle, high = min(values), median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def _device_name(settings: Settings) -> str:
    if settings.use_gpu:
        return torch.cuda.get_device_name()
    return processor_facts().get("model name") or platform.processor() or platform.machine()
