"""What ``fairseq-generate`` and ``fairseq-interactive`` do with models and text, from options to printed lines."""

from __future__ import annotations

import logging
import math
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy
import torch
from omegaconf import OmegaConf

from fairseq_compat import provenance
from fairseq_compat.errors import UserError
from fairseq_compat.generation_options import (
    require_dropout,
    require_end,
    require_models_of_generator,
    require_used,
)
from fairseq_compat.literals import dictionary, evaluate
from fairseq_compat.ranges import require_ranges
from fairseq_compat.unknown_words import UnknownWords

#: fairseq prints base-2 logarithms.
_BASE = math.log(2)

#: Unknown words in references and translations for sacrebleu, which would split ``<<unk>>`` into five words. They are
#: those of ``--eval-bleu``.
_UNKNOWN_WORDS = ("UNKNOWNTOKENINREF", "UNKNOWNTOKENINHYP")

#: Parts of a checkpoint's configuration of which a model, its task and its loss are made.
_PARTS_OF_MODELS = ("model", "task", "criterion")

#: The translation of an empty line.
_EMPTY: dict[str, Any] = {
    "tokens": torch.empty(0, dtype=torch.long),
    "score": torch.zeros(()),
    "positional_scores": torch.empty(0),
    "alignment": [],
    "steps": 0,
    "history": [],
}


@dataclass
class Loaded:
    """Models that are ready to translate, and how their text is encoded."""

    task: Any
    models: list[Any]
    generator: Any
    saved_cfg: Any  # of the first model's training
    device: torch.device
    decode: Callable[[str], str]  # tokens of the dictionary, joined by spaces -> text
    encode: Callable[[str], str]
    unknown_words: UnknownWords | None  # with --replace-unk

    @property
    def source_dictionary(self) -> Any:
        """The source dictionary; None for models that read something else, such as audio."""
        try:
            return getattr(self.task, "source_dictionary", None)
        except NotImplementedError:
            return None

    @property
    def hidden(self) -> set[int]:
        """Target tokens that are not part of the text, such as language tokens."""
        stripped: set[int] = getattr(self.generator, "symbols_to_strip_from_output", {self.generator.eos})
        return stripped

    @property
    def reads_text(self) -> bool:
        """Whether the models translate, rather than continue a text, which may be empty, like a language model."""
        return all(hasattr(model, "encoder") for model in self.models)

    @property
    def max_positions(self) -> Any:
        """The maximum lengths that the task and all models allow."""
        from fairseq import utils

        limits = [model.max_positions() for model in self.models]
        return utils.resolve_max_positions(self.task.max_positions(), *limits)

    def words(self, tokens: Any) -> Any:
        """Return tokens for scoring, and an end: without language tokens, which every reference would have."""
        dictionary = self.task.target_dictionary
        no_words = {*self.hidden, dictionary.bos(), dictionary.eos()}
        words = [token for token in tokens.tolist() if token not in no_words]
        return torch.tensor([*words, dictionary.eos()], dtype=torch.int)

    def moved(self, sample: dict[str, Any]) -> dict[str, Any]:
        from fairseq import utils

        moved: dict[str, Any] = utils.apply_to_sample(lambda tensor: tensor.to(self.device), sample)
        return moved


def load(cfg: Any, subset: str | None = None) -> Loaded:
    """Load the models of a command's options, and a ``subset`` of the data, if given.

    Raises:
        UserError: an option is wrong, or does not fit the models.
    """
    from fairseq import checkpoint_utils, tasks, utils
    from fairseq.tasks.translation import TranslationTask

    if cfg.common.seed is not None and not cfg.generation.no_seed_provided:
        numpy.random.seed(cfg.common.seed)
        utils.set_torch_seed(cfg.common.seed)
    overrides = dictionary("--model-overrides", cfg.common_eval.model_overrides)
    modules = cfg.generation.retain_dropout_modules
    if isinstance(modules, str):
        # fairseq would look for each module's name anywhere within the string.
        is_list = modules.startswith(("[", "("))
        cfg.generation.retain_dropout_modules = list(evaluate(modules)) if is_list else modules.split(",")
    task = tasks.setup_task(cfg.task)
    require_recorded(overrides, cfg)
    models, saved_cfg = checkpoint_utils.load_model_ensemble(
        utils.split_paths(cfg.common_eval.path),
        arg_overrides=overrides,
        task=task,
        suffix=cfg.checkpoint.checkpoint_suffix,
        strict=(cfg.checkpoint.checkpoint_shard_count == 1),
        num_shards=cfg.checkpoint.checkpoint_shard_count,
    )
    if subset is not None:
        task.load_dataset(subset, task_cfg=saved_cfg.task)
    # A language model continues its input; it cannot be in an ensemble with translation models.
    if len({hasattr(model, "encoder") for model in models}) > 1:
        raise UserError("--path has both a language model and translation models; give the former with --lm-path")
    if isinstance(task, TranslationTask) and not all(hasattr(model, "encoder") for model in models):
        raise UserError(f"--path {cfg.common_eval.path} is a language model; give --task language_modeling for it")
    language_model = None
    if cfg.generation.lm_path is not None:
        language_model = _load_language_model(cfg.generation.lm_path, {**overrides, "data": cfg.task.data}, task)

    device = torch.device("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu")
    for model in models if language_model is None else [*models, language_model]:
        if cfg.common.fp16:
            model.half()
        if not cfg.distributed_training.pipeline_model_parallel:
            model.to(device)
        model.prepare_for_inference_(cfg)

    unknown_words = None
    if cfg.generation.replace_unk is not None:
        unknown_words = UnknownWords(cfg.generation.replace_unk, task, cfg.generation.print_alignment or "hard")
    generator = _build_generator(cfg, task, models, language_model, unknown_words)
    encode, decode = _build_text_functions(cfg, task)
    return Loaded(task, models, generator, saved_cfg, device, decode, encode, unknown_words)


def _load_language_model(path: str, overrides: dict[str, Any], task: Any) -> Any:
    """Load a language model with the target dictionary of a task.

    Raises:
        UserError: it is another kind of model, or its dictionary differs.
    """
    from fairseq import checkpoint_utils

    (model,), _, own_task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=overrides, task=None)
    if hasattr(model, "encoder"):
        raise UserError(f"--lm-path {path} is a translation model, not a language model; give it with --path")
    if own_task.target_dictionary.symbols != task.target_dictionary.symbols:
        raise UserError(
            f"--lm-path {path} has another dictionary than the translations; train it on data made with "
            "fairseq-preprocess --only-source --srcdict and their dictionary, such as dict.de.txt"
        )
    return model


def _build_generator(
    cfg: Any, task: Any, models: list[Any], language_model: Any, unknown_words: UnknownWords | None
) -> Any:
    """Build the sequence generator.

    Raises:
        UserError: a generation option has no effect on it.
    """
    # --replace-unk needs an alignment; it is printed only with --print-alignment.
    generation = cfg.generation.copy()
    if unknown_words is not None:
        generation.print_alignment = unknown_words.alignment_type
    searched_with = {"lm_model": language_model, "lm_weight": generation.lm_weight}
    generator = task.build_generator(models, generation, extra_gen_cls_kwargs=searched_with)
    require_models_of_generator(generator, models)
    require_used(generator, cfg.generation)
    require_end(generator, generation.eos_token, task.target_dictionary)
    if generation.retain_dropout_modules is not None:
        require_dropout(models, generation.retain_dropout_modules)
    return generator


def _build_text_functions(cfg: Any, task: Any) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return a function that tokenizes text and splits it into subwords, and its inverse."""
    tokenizer, bpe = task.build_tokenizer(cfg.tokenizer), task.build_bpe(cfg.bpe)
    # After --post-process with the same subwords, there is nothing left to join.
    is_joined = cfg.common_eval.post_process == provenance.settings_in("bpe", cfg).get("bpe")

    def encode(text: str) -> str:
        for coder in (tokenizer, bpe):
            text = text if coder is None else coder.encode(text)
        return text

    def decode(text: str) -> str:
        for coder in (None if is_joined else bpe, tokenizer):
            text = text if coder is None else coder.decode(text)
        return text

    return encode, decode


def require_path(cfg: Any, *, several: bool = False) -> None:
    """Raise UserError unless a command has a model, or with ``several`` at least one."""
    from fairseq import utils

    path = cfg.common_eval.path
    if path is None:
        raise UserError("--path is missing; give the checkpoint of the model")
    if not several and len(utils.split_paths(path)) > 1:
        raise UserError(f"--path {path} has several models; give one")


def require_recorded(overrides: Mapping[str, Any], cfg: Any) -> None:
    """Raise UserError unless a model or its task reads each option of ``--model-overrides``, with a value of its type.

    The checkpoint is loaded without the overrides, since fairseq adds any name to the options of a model.
    """
    from fairseq import checkpoint_utils, utils

    if not overrides:
        return
    require_ranges(overrides, "--model-overrides")
    path = utils.split_paths(cfg.common_eval.path)[0]
    saved = cfg.checkpoint
    file = checkpoint_utils.get_maybe_sharded_checkpoint_filename(
        path, saved.checkpoint_suffix, 0, saved.checkpoint_shard_count
    )
    recorded = checkpoint_utils.load_checkpoint_to_cpu(file)["cfg"]
    options = _options_of_models(OmegaConf.to_container(recorded))
    # Options newer than the checkpoint are not recorded, but declared by the architecture.
    dataclass = provenance.options_class(provenance.architecture_of(recorded["model"]))
    declared = getattr(dataclass, "__dataclass_fields__", {})
    for name, value in overrides.items():
        if name in _PARTS_OF_MODELS and isinstance(value, dict):  # fairseq overrides what is in it
            continue
        if name not in options and name not in declared:
            raise UserError(f"--model-overrides {name!r} is not an option of the model in {path}; check the name")
        is_number = isinstance(options.get(name), (int, float))
        if is_number and not isinstance(value, (int, float)):
            raise UserError(f"--model-overrides {name!r} has the value {value!r}; in {path} it is {options[name]}")


def _options_of_models(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the options that models, their tasks and their losses read of a checkpoint's configuration."""
    of_commands = {*recorded}
    for part, options in recorded.items():
        if part not in _PARTS_OF_MODELS:
            of_commands.update(name for name, _ in _list_options(options))
    of_models = {}
    for part in _PARTS_OF_MODELS:
        # A part without a dataclass of its own has the options of all parts.
        ignored = of_commands if isinstance(recorded.get(part), Namespace) else ()
        of_models.update({name: value for name, value in _list_options(recorded.get(part)) if name not in ignored})
    return of_models


def _list_options(options: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of options, including those in nested groups."""
    options = vars(options) if isinstance(options, Namespace) else options
    if isinstance(options, dict):
        for name, value in options.items():
            yield name, value
            yield from _list_options(value)


def translate_data(cfg: Any, output: IO[str]) -> Any:
    """Translate a subset of binarized data, or a shard of it; return the scorer.

    Raises:
        UserError: options do not fit one another, the models or the data.
    """
    from fairseq import scoring
    from fairseq.logging import progress_bar
    from fairseq.logging.meters import StopwatchMeter, TimeMeter

    logger = logging.getLogger("fairseq_cli.generate")
    if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
        cfg.dataset.max_tokens = 12000
    logger.info(cfg)
    logger.info("loading model(s) from %s", cfg.common_eval.path)
    loaded = load(cfg, cfg.dataset.gen_subset)
    dataset = loaded.task.dataset(cfg.dataset.gen_subset)
    progress = progress_bar.progress_bar(
        _make_batches(cfg, loaded, dataset),
        log_format=cfg.common.log_format,
        log_interval=cfg.common.log_interval,
        default_log_format=("tqdm" if not cfg.common.no_progress_bar else "simple"),
    )
    scorer = scoring.build_scorer(_choose_scoring(cfg), loaded.task.target_dictionary)
    printer = _Printer(cfg, loaded, output)

    timer, speed, sentences, is_scored = StopwatchMeter(), TimeMeter(), 0, True
    for sample in progress:
        if "net_input" not in sample:  # an empty batch, which pads a shard with fewer batches than the others
            continue
        sample = loaded.moved(sample)
        prefix = sample["target"][:, : cfg.generation.prefix_size] if cfg.generation.prefix_size > 0 else None
        timer.start()
        translations = loaded.task.inference_step(
            loaded.generator, loaded.models, sample, prefix_tokens=prefix, constraints=sample.get("constraints")
        )
        tokens = sum(len(hypotheses[0]["tokens"]) for hypotheses in translations)
        timer.stop(tokens)
        is_scored = sample["target"] is not None
        for row, hypotheses in enumerate(translations):
            printer.print_sentence(dataset, sample, row, hypotheses, scorer)
        speed.update(tokens)
        progress.log({"wps": round(speed.avg)})
        sentences += sample["nsentences"] if "nsentences" in sample else sample["id"].numel()

    logger.info("NOTE: hypothesis and token scores are output in base 2")
    if not sentences:
        shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
        raise UserError(f"--shard-id {shard} of --num-shards {shards} has no sentence; give fewer shards")
    seconds = max(float(timer.sum), 1e-9)
    logger.info(
        f"Translated {sentences:,} sentences ({timer.n:,} tokens) in {timer.sum:.1f}s ({sentences / seconds:.2f} "
        f"sentences/s, {timer.n / seconds:.2f} tokens/s)"
    )
    if is_scored:
        if cfg.bpe and not cfg.generation.sacrebleu:
            unit = "words split at spaces" if cfg.common_eval.post_process else "subwords"
            logger.warning("BLEU is computed on %s; --sacrebleu computes it on words, as papers do", unit)
        result = scorer.result_string()
        print(f"Generate {cfg.dataset.gen_subset} with beam={cfg.generation.beam}: {result}", file=output)
    return scorer


def _make_batches(cfg: Any, loaded: Loaded, dataset: Any) -> Any:
    """Return the batches of a data set, or of a shard of it."""
    options = cfg.dataset
    batch_size = options.batch_size
    if options.num_shards > 1:  # even with few sentences, every shard gets some
        share = max(1, math.ceil(len(dataset) / options.num_shards))
        batch_size = share if batch_size is None else min(batch_size, share)
    return loaded.task.get_batch_iterator(
        dataset=dataset,
        max_tokens=options.max_tokens,
        max_sentences=batch_size,
        max_positions=loaded.max_positions,
        ignore_invalid_inputs=options.skip_invalid_size_inputs_valid_test,
        required_batch_size_multiple=options.required_batch_size_multiple,
        seed=cfg.common.seed,
        num_shards=max(options.num_shards, cfg.distributed_training.distributed_world_size),
        shard_id=max(options.shard_id, cfg.distributed_training.distributed_rank),
        num_workers=options.num_workers,
        data_buffer_size=options.data_buffer_size,
    ).next_epoch_itr(shuffle=False)


def _choose_scoring(cfg: Any) -> Any:
    """Return the options of the scorer: those of ``--scoring``, or sacrebleu's with ``--sacrebleu``."""
    from fairseq.scoring.bleu import SacrebleuConfig

    name = getattr(cfg.scoring, "_name", None)
    if not cfg.generation.sacrebleu or name == "sacrebleu":
        return cfg.scoring
    if name not in (None, "bleu"):  # bleu is the default
        raise UserError(f"--scoring {name} does not go with --sacrebleu; leave one of them out")
    return OmegaConf.structured(SacrebleuConfig(_name="sacrebleu"))


def translate_lines(cfg: Any, buffers: Iterable[list[str]], make_batches: Callable[..., Iterable[Any]]) -> None:
    """Translate lines of text, buffer by buffer; ``make_batches`` makes a buffer's batches.

    Raises:
        UserError: options do not fit one another, the models or the lines.
    """
    from fairseq import utils
    from fairseq.token_generation_constraints import unpack_constraints

    logger = logging.getLogger("fairseq_cli.interactive")
    started, seconds = time.time(), 0.0
    logger.info(cfg)
    logger.info("loading model(s) from %s", cfg.common_eval.path)
    loaded = load(cfg)
    printer = _Printer(cfg, loaded, sys.stdout)
    pad = loaded.task.target_dictionary.pad()
    if cfg.generation.constraints:
        logger.warning("NOTE: Constrained decoding currently assumes a shared subword vocabulary.")
    if cfg.interactive.buffer_size > 1:
        logger.info("Sentence buffer size: %s", cfg.interactive.buffer_size)
    logger.info("NOTE: hypothesis and token scores are output in base 2")
    logger.info("Type the input sentence and press return:")

    first = 0
    for lines in buffers:
        results = {}
        # make_batches takes constraints away from lines with tabs.
        for batch in make_batches(lines, cfg, loaded.task, loaded.max_positions, loaded.encode):
            sample = loaded.moved({"net_input": {"src_tokens": batch.src_tokens, "src_lengths": batch.src_lengths}})
            constraints: Any = None if batch.constraints is None else batch.constraints.to(loaded.device)
            began = time.time()
            translations = loaded.task.inference_step(loaded.generator, loaded.models, sample, constraints=constraints)
            elapsed = time.time() - began
            seconds += elapsed
            for row, (line, hypotheses) in enumerate(zip(batch.ids.tolist(), translations, strict=False)):
                if loaded.reads_text and not loaded.encode(lines[line]).split():
                    hypotheses = [_EMPTY]
                source_tokens = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
                asked = unpack_constraints(constraints[row]) if cfg.generation.constraints else []
                results[line] = (source_tokens, hypotheses, asked, elapsed / len(translations))
        for line, result in sorted(results.items()):
            words = loaded.encode(lines[line]).split() if loaded.unknown_words is not None else []
            printer.print_line(first + line, words, *result)
        first += len(lines)
    logger.info("Total time: %.3f seconds; translation time: %.3f", time.time() - started, seconds)


class _Printer:
    """Prints sentences and their translations as fairseq does: a letter, the sentence's number, and what it has."""

    def __init__(self, cfg: Any, loaded: Loaded, output: IO[str]) -> None:
        self._cfg, self._loaded, self._output = cfg, loaded, output
        self._post_process = cfg.common_eval.post_process
        self._is_quiet = cfg.common_eval.quiet
        self._dictionary = loaded.task.target_dictionary

    def print_sentence(
        self, dataset: Any, sample: dict[str, Any], row: int, hypotheses: Sequence[dict[str, Any]], scorer: Any
    ) -> None:
        """Print source, reference and hypotheses of one sentence of a batch, and score the best hypothesis."""
        from fairseq import utils

        loaded, dictionary = self._loaded, self._dictionary
        number, pad = int(sample["id"][row]), dictionary.pad()
        source_tokens, source, source_words = None, "", []
        if "src_tokens" in sample["net_input"]:
            source_tokens = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
        if loaded.unknown_words is not None:
            source = _read_original_text(dataset.src, number)
            source_words = source.split()
        elif loaded.source_dictionary is not None:
            source = loaded.source_dictionary.string(source_tokens, self._post_process)
        if loaded.source_dictionary is not None:
            self._print("S", number, loaded.decode(source))

        target, target_tokens = None, None
        if sample["target"] is not None:
            target_tokens = utils.strip_pad(sample["target"][row], pad).int().cpu()
            if loaded.unknown_words is not None:
                target = _read_original_text(dataset.tgt, number)
            else:
                target = dictionary.string(
                    target_tokens, self._post_process, escape_unk=True, extra_symbols_to_ignore=loaded.hidden
                )
            target = loaded.decode(target)
            self._print("T", number, target)

        texts = self._print_hypotheses(number, hypotheses, source_tokens, source_words)
        # Only the best hypothesis is scored.
        if target is not None:
            self._score(scorer, target, target_tokens, texts[0], hypotheses[0]["tokens"])

    def print_line(
        self,
        number: int,
        source_words: Sequence[str],
        source_tokens: Any,
        hypotheses: Sequence[dict[str, Any]],
        constraints: Sequence[Any],
        seconds: float,
    ) -> None:
        """Print a line of text, the constraints of its translation, and hypotheses."""
        if self._loaded.source_dictionary is not None:
            self._print("S", number, self._loaded.source_dictionary.string(source_tokens, self._post_process))
            self._print("W", number, f"{seconds:.3f}\tseconds")
            for constraint in constraints:
                self._print("C", number, self._dictionary.string(constraint, self._post_process))
        self._print_hypotheses(number, hypotheses, source_tokens, source_words)

    def _print_hypotheses(
        self, number: int, hypotheses: Sequence[dict[str, Any]], source_tokens: Any, source_words: Sequence[str]
    ) -> list[str]:
        """Print the best hypotheses: scores, texts, and what options ask for; return the texts before detokenizing."""
        options = self._cfg.generation
        texts = []
        for hypothesis in hypotheses[: options.nbest]:
            text = self._text(hypothesis, source_tokens, source_words)
            texts.append(text)
            score = hypothesis["score"] / _BASE
            self._print("H", number, f"{score}\t{text}")
            self._print("D", number, f"{score}\t{self._loaded.decode(text)}")
            token_scores = (hypothesis["positional_scores"] / _BASE).tolist()
            self._print("P", number, " ".join(f"{value:.4f}" for value in token_scores))
            if options.print_alignment == "soft":
                self._print("A", number, " ".join(",".join(row) for row in hypothesis["alignment"]))
            elif options.print_alignment:
                self._print("A", number, " ".join(f"{source}-{target}" for source, target in hypothesis["alignment"]))
            if options.print_step:
                self._print("I", number, hypothesis["steps"])
            for step, refined in enumerate(hypothesis["history"] if options.retain_iter_history else ()):
                self._print("E", f"{number}_{step}", self._dictionary.string(refined["tokens"].int().cpu()))
        return texts

    def _text(self, hypothesis: dict[str, Any], source_tokens: Any, source_words: Sequence[str]) -> str:
        """Return the text of a hypothesis, in which ``--replace-unk`` has replaced unknown words."""
        from fairseq.data.data_utils import post_process

        loaded = self._loaded
        if loaded.unknown_words is None:
            tokens = hypothesis["tokens"].int().cpu()
            text = self._dictionary.string(tokens, self._post_process, extra_symbols_to_ignore=loaded.hidden)
        else:
            symbols = loaded.unknown_words.replace(hypothesis, source_tokens, source_words, loaded.hidden)
            text = post_process(" ".join(symbols), self._post_process)
        return str(text)

    def _score(self, scorer: Any, target: str, target_tokens: Any, text: str, tokens: Any) -> None:
        """Score a translation: its text if the scorer takes texts, else words, or subwords if they are not joined."""
        loaded, dictionary = self._loaded, self._dictionary
        detokenized = loaded.decode(text)
        if hasattr(scorer, "add_string"):
            in_reference, in_translation = _UNKNOWN_WORDS
            scorer.add_string(
                target.replace(dictionary.unk_string(escape=True), in_reference),
                detokenized.replace(dictionary.unk_string(), in_translation),
            )
        elif loaded.unknown_words is None and self._post_process is None:
            # As fairseq does: the subwords of both, without making text of them.
            scorer.add(loaded.words(target_tokens), loaded.words(tokens))
        else:
            reference = dictionary.encode_line(target, add_if_not_exist=True)
            scorer.add(reference, dictionary.encode_line(detokenized, add_if_not_exist=True))

    def _print(self, letter: str, number: object, text: object) -> None:
        if not self._is_quiet:
            print(f"{letter}-{number}\t{text}", file=self._output)


def _read_original_text(dataset: Any, number: int) -> str:
    """Return a sentence of a data set, or of the one that it wraps, as it was written."""
    while not hasattr(dataset, "get_original_text"):
        if not hasattr(dataset, "dataset"):
            raise UserError(
                "--replace-unk copies words of the text, which this data does not have; make it with "
                "fairseq-preprocess --dataset-impl raw, or use fairseq-interactive"
            )
        dataset = dataset.dataset
    text: str = dataset.get_original_text(number)
    return text
