"""Measures how fast a trained system decodes: evaluate.sh RECIPE SYSTEM --speed.

The system and its baseline translate the first test set, sorted by length, in turns. Only the beam search is timed:
models are loaded, and batches are on the device, before. Settings are the papers' where they name them. The depth-wise
LSTM's: one GPU, fp16, beam 4, sorted by source length; no batch. Multi-unit's Figure 2 (b): a GPU, beam 4, 30 sentences
a batch, the validation set of NIST, which is the recipe's first test set; no precision.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from recipe_step import languages_of, run_folder, say, whole_number, write_json
from result_tables import ResultTable
from systems import FOLDER, System
from toml_files import read_toml, require_keys
from trained_runs import average_suffix, checkpoint_of, seeds_to_evaluate, with_average
from translated_sets import evaluation_sets
from turns import extent, ratios, take_turns, timed

from fairseq_compat import UserError
from fairseq_compat.process import processor_facts
from recipes import Recipe, all_recipes, baselines_of, system_of

#: Of ``PRECISION``.
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

#: Figure 2 (b) of the paper on multi-unit Transformers.
MULTI_UNIT_BATCH = 30

#: Recipe -> system -> speed in its paper.
PUBLISHED: dict[str, dict[str, str]] = read_toml(FOLDER / "speeds.toml")
require_keys("speeds.toml", PUBLISHED, [], all_recipes())
for _recipe, _speeds in PUBLISHED.items():
    require_keys(f"speeds.toml, {_recipe}", _speeds, [], all_recipes()[_recipe].systems)


@dataclass(frozen=True)
class Settings:
    """How systems decode.

    Attributes:
        device: cuda or cpu.
        precision: one of TYPES.
        max_tokens, batch_sentences: of a batch; None is no limit.
        rounds: how often each system translates.
    """

    device: str
    precision: str
    max_tokens: int | None
    batch_sentences: int | None
    rounds: int

    @property
    def batch(self) -> str:
        limits = []
        if self.batch_sentences:
            limits.append(f"{self.batch_sentences} sentences")
        if self.max_tokens:
            limits.append(f"{self.max_tokens} source tokens")
        return " and ".join(limits)


class Speed(NamedTuple):
    """Amounts decoded in a second of one round."""

    sentences: float
    tokens: float


def measure_speed(recipe_name: str, name: str) -> None:
    """Measure a system and its nearest baseline that is trained here, print their speeds and write them as JSON."""
    recipe = all_recipes()[recipe_name]
    system = with_average(system_of(recipe_name, name))
    work = Path(os.environ["WORK"])
    if recipe.many:
        raise UserError(f"--speed is for recipes of one language pair, and {recipe_name} has many; leave it out")
    # 1. Load the models.
    seed = seeds_to_evaluate(work, name)[0]
    settings = decoding_settings(system)
    # All models are loaded before the first turn.
    decoders = {}
    for label, checkpoint in _checkpoints(recipe_name, name, system, seed).items():
        decoders[label] = _decoder(recipe, checkpoint, work / "data-bin", settings)
    # 2. Measure.
    sentences: dict[str, list[float]] = {}
    tokens: dict[str, list[float]] = {}
    for label, rounds in take_turns(decoders, settings.rounds).items():
        sentences[label] = [speed.sentences for speed in rounds]
        tokens[label] = [speed.tokens for speed in rounds]

    test = evaluation_sets(recipe, work)[0].name
    device = _device_name(settings)
    threads = torch.get_num_threads()
    # 3. Write and print.
    document = {
        "recipe": recipe_name,
        "system": name,
        "seed": seed,
        "test": test,
        "device": device,
        "threads": threads,
        "precision": settings.precision,
        "beam": recipe.beam,
        "length_penalty": recipe.length_penalty,
        "max_tokens": settings.max_tokens,
        "batch_sentences": settings.batch_sentences,
        "sentences_per_second": sentences,
        "tokens_per_second": tokens,
    }
    write_json(work / "systems" / f"{name}{average_suffix()}.{test}.speed.json", document)

    if settings.device == "cpu":
        device += f", {threads} thread{'s' if threads > 1 else ''}"
    print(f"{recipe_name}, {name}: {system.about}; {test} on {device}")
    print(f"{settings.precision}, beam {recipe.beam}, lenpen {recipe.length_penalty}, batches of {settings.batch}")
    print(f"\n{_table(sentences, tokens, PUBLISHED.get(recipe_name, {}))}")
    print(f"median (lowest-highest) of {settings.rounds} rounds, in turns; tokens: subwords and ends of sentences")


def decoding_settings(system: System) -> Settings:
    """Return the settings of the environment, by default those of the system's paper."""
    device = "cuda" if torch.cuda.is_available() and os.environ.get("GPUS") != "0" else "cpu"
    precision = os.environ.get("PRECISION") or ("fp16" if device == "cuda" else "fp32")
    if precision not in TYPES:
        raise UserError(f"PRECISION={precision} is not one of {', '.join(TYPES)}")
    if precision == "fp16" and device == "cpu":
        raise UserError("PRECISION=fp16 needs a GPU; fp32 and bf16 run on a CPU, too")
    # Limits that are named hold; without any, those of the paper.
    max_tokens: int | None = None
    batch_sentences: int | None = None
    if os.environ.get("BATCH_SENTENCES"):
        batch_sentences = whole_number(os.environ, "BATCH_SENTENCES", MULTI_UNIT_BATCH)
    elif system.paper == "multi-unit" and not os.environ.get("MAX_TOKENS"):
        batch_sentences = MULTI_UNIT_BATCH
    if os.environ.get("MAX_TOKENS") or batch_sentences is None:
        max_tokens = whole_number(os.environ, "MAX_TOKENS", 4096)
    rounds = whole_number(os.environ, "ROUNDS", 5)
    return Settings(device, precision, max_tokens, batch_sentences, rounds)


def _checkpoints(recipe: str, name: str, system: System, seed: str) -> dict[str, Path]:
    """Return the evaluated checkpoints of a system and of its nearest baseline that was trained with the seed."""
    checkpoints = {name: checkpoint_of(system, run_folder(os.environ, name, seed))}
    for baseline in baselines_of(recipe, system):
        folder = run_folder(os.environ, baseline, seed)
        # Only the nearest one that has been trained is measured.
        if (folder / "checkpoints" / "checkpoint_last.pt").exists():
            checkpoints[baseline] = checkpoint_of(with_average(system_of(recipe, baseline)), folder)
            break
    return checkpoints


def _decoder(recipe: Recipe, checkpoint: Path, data: Path, settings: Settings) -> Callable[[], Speed]:
    """Return a function that translates the first test set with a model, as fairseq-generate does, and its speed."""
    source, target = languages_of(data)
    # Options of fairseq-generate, parsed by its own parser.
    words = [str(data), "--path", str(checkpoint), "--source-lang", source, "--target-lang", target]
    words += [*recipe.text_options(data), "--beam", str(recipe.beam), "--lenpen", str(recipe.length_penalty)]
    if settings.max_tokens:
        words += ["--max-tokens", str(settings.max_tokens)]
    if settings.batch_sentences:
        words += ["--batch-size", str(settings.batch_sentences)]
    if settings.device == "cpu":
        words += ["--cpu"]
    parsed = fairseq_options.parse_args_and_arch(fairseq_options.get_generation_parser(), words)
    cfg = convert_namespace_to_omegaconf(parsed)
    task = tasks.setup_task(cfg.task)

    # Like fairseq-generate from here on, which casts to no other type than fp16.
    (model,), saved = checkpoint_utils.load_model_ensemble([str(checkpoint)], task=task)
    model.to(settings.device, TYPES[settings.precision])
    model.prepare_for_inference_(cfg)
    generator = task.build_generator([model], cfg.generation)
    batches = _batches(task, model, saved, settings)
    sentences = sum(batch["nsentences"] for batch in batches)
    say(f"{checkpoint}: {sentences} sentences in {len(batches)} batches")

    def decode() -> Speed:
        hypotheses: list[Any] = []

        def search() -> None:
            for batch in batches:
                hypotheses.extend(task.inference_step(generator, [model], batch))

        seconds = timed(search, settings.device)
        # Of n hypotheses the first is the best.
        # Generated tokens, not the reference's: longer output is more work.
        tokens = sum(len(best["tokens"]) for best, *_ in hypotheses)
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
    if settings.device == "cuda":
        batches = [utils.move_to_cuda(batch) for batch in batches]
    return batches


def _table(
    sentences: Mapping[str, Sequence[float]], tokens: Mapping[str, Sequence[float]], published: Mapping[str, str]
) -> str:
    """Return the speeds, and the ratio of the first system to the second if there is one, taken within rounds."""
    table = ResultTable("system", "sentences/s", "target tokens/s", "published")
    for name in sentences:
        row = {"system": name, "published": published.get(name, "")}
        table.add(row | {"sentences/s": _range(sentences[name], 2), "target tokens/s": _range(tokens[name], 2)})
    if len(sentences) > 1:
        # Ratios within rounds, in which both systems run at the same speed of the machine.
        of_sentences = _range(ratios(*sentences.values()), 3)
        of_tokens = _range(ratios(*tokens.values()), 3)
        table.add({"system": "ratio", "sentences/s": of_sentences, "target tokens/s": of_tokens})
    return table.text()


def _range(values: Sequence[float], digits: int) -> str:
    low, middle, high = extent(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def _device_name(settings: Settings) -> str:
    if settings.device == "cuda":
        return torch.cuda.get_device_name()
    return processor_facts().get("model name") or platform.processor() or platform.machine()
