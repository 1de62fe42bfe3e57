"""What ``fairseq-generate`` and ``fairseq-interactive`` do with models and text, from options to printed lines."""

from __future__ import annotations

import logging
import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy
import torch
from omegaconf import OmegaConf

from fairseq_compat import provenance
from fairseq_compat.errors import UserError
from fairseq_compat.generation_options import require_dropout, require_end, require_used
from fairseq_compat.literals import dictionary
from fairseq_compat.unknown_words import UnknownWords

#: What fairseq prints numbers to the base of.
_BASE = math.log(2)

#: Stand for unknown words in references and translations where sacrebleu would divide ``<<unk>>`` into five words; they
#: are those of ``--eval-bleu``.
_UNKNOWN_WORDS = ("UNKNOWNTOKENINREF", "UNKNOWNTOKENINHYP")

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
    """Models that are ready to translate, and what their text is made of."""

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
        """None of models that read something else, such as sounds."""
        try:
            return getattr(self.task, "source_dictionary", None)
        except NotImplementedError:
            return None

    @property
    def hidden(self) -> set[int]:
        """Target tokens that are no text."""
        stripped: set[int] = getattr(self.generator, "symbols_to_strip_from_output", {self.generator.eos})
        return stripped

    def words(self, tokens: Any) -> Any:
        """Return tokens that are scored, and an end: without those of languages, which every reference has."""
        dictionary = self.task.target_dictionary
        no_words = {*self.hidden, dictionary.bos(), dictionary.eos()}
        words = [token for token in tokens.tolist() if token not in no_words]
        return torch.tensor([*words, dictionary.eos()], dtype=torch.int)

    def moved(self, sample: dict[str, Any]) -> dict[str, Any]:
        from fairseq import utils

        moved: dict[str, Any] = utils.apply_to_sample(lambda tensor: tensor.to(self.device), sample)
        return moved


def load(cfg: Any, subset: str | None = None) -> Loaded:
    """Return models for a command's options; their task has loaded a ``subset``, if any."""
    from fairseq import checkpoint_utils, tasks, utils

    if cfg.common.seed is not None and not cfg.generation.no_seed_provided:
        numpy.random.seed(cfg.common.seed)
        utils.set_torch_seed(cfg.common.seed)
    overrides = dictionary("--model-overrides", cfg.common_eval.model_overrides)
    task = tasks.setup_task(cfg.task)
    if overrides:
        _require_recorded(overrides, cfg)
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
    if len({hasattr(model, "encoder") for model in models}) > 1:
        raise UserError("--path has a language model beside models that translate; give it with --lm-path")
    language_model = None
    if cfg.generation.lm_path is not None:
        language_model = _language_model(cfg.generation.lm_path, {**overrides, "data": cfg.task.data}, task)

    device = torch.device("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu")
    for model in models if language_model is None else [*models, language_model]:
        if cfg.common.fp16:
            model.half()
        if not cfg.distributed_training.pipeline_model_parallel:
            model.to(device)
        model.prepare_for_inference_(cfg)

    generation = cfg.generation.copy()
    unknown_words = None
    if generation.replace_unk is not None:
        unknown_words = UnknownWords(generation.replace_unk, task, generation.print_alignment or "hard")
        generation.print_alignment = unknown_words.alignment
    searched_with = {"lm_model": language_model, "lm_weight": cfg.generation.lm_weight}
    generator = task.build_generator(models, generation, extra_gen_cls_kwargs=searched_with)
    require_used(generator, cfg.generation)
    require_end(generator, cfg.generation.eos_token, task.target_dictionary)
    if cfg.generation.retain_dropout_modules is not None:
        require_dropout(models, cfg.generation.retain_dropout_modules)

    tokenizer, bpe = task.build_tokenizer(cfg.tokenizer), task.build_bpe(cfg.bpe)
    coders = [coder for coder in (tokenizer, bpe) if coder is not None]
    # What --post-process has joined has no pieces any more.
    is_joined = cfg.common_eval.post_process == provenance.settings_in("bpe", cfg).get("bpe")
    decoders = [tokenizer] if is_joined else [bpe, tokenizer]

    def encode(text: str) -> str:
        for coder in coders:
            text = coder.encode(text)
        return text

    def decode(text: str) -> str:
        for coder in decoders:
            text = text if coder is None else coder.decode(text)
        return text

    return Loaded(task, models, generator, saved_cfg, device, decode, encode, unknown_words)


def _language_model(path: str, overrides: dict[str, Any], task: Any) -> Any:
    """Return a language model whose tokens are those of a task's translations.

    Raises:
        UserError: it is another kind of model, or its dictionary differs.
    """
    from fairseq import checkpoint_utils

    (model,), _, own_task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides=overrides, task=None)
    if hasattr(model, "encoder"):
        raise UserError(f"--lm-path {path} is no language model, but one that translates; give it with --path")
    if own_task.target_dictionary.symbols != task.target_dictionary.symbols:
        raise UserError(
            f"--lm-path {path} has another dictionary than the translations; train it on data of fairseq-preprocess "
            "--only-source --srcdict with their dictionary, such as dict.de.txt"
        )
    return model


def _require_recorded(overrides: Iterable[str], cfg: Any) -> None:
    """Raise UserError unless the first checkpoint records each option of ``--model-overrides``.

    It is read without them, since fairseq writes any name into the options of a model.
    """
    from fairseq import checkpoint_utils, utils

    path = utils.split_paths(cfg.common_eval.path)[0]
    saved = cfg.checkpoint
    file = checkpoint_utils.get_maybe_sharded_checkpoint_filename(
        path, saved.checkpoint_suffix, 0, saved.checkpoint_shard_count
    )
    recorded = checkpoint_utils.load_checkpoint_to_cpu(file)["cfg"]
    model = recorded["model"]
    architecture = getattr(model, "_name", None) or getattr(model, "arch", None)
    # Those that are newer than the checkpoint, too.
    declared = getattr(provenance.options_class(architecture), "__dataclass_fields__", {})
    for name in overrides:
        if name not in declared and not _has(recorded, name):
            raise UserError(f"--model-overrides {name!r} is no option that {path} records; check the name")


def _has(options: Any, name: str) -> bool:
    """Return whether a checkpoint's options have a name, in any of their parts."""
    if isinstance(options, Namespace):
        return hasattr(options, name)
    if not OmegaConf.is_dict(options):
        return False
    # As they are: one may be mandatory and missing, or refer to another.
    parts = {part: options._get_node(part) for part in options.keys()}  # noqa: SIM118  # those without a value, too
    return name in parts or any(_has(_value(node), name) for node in parts.values())


def _value(node: Any) -> Any:
    """Return what a node of a configuration holds; options in a configuration may be an object."""
    return node if OmegaConf.is_config(node) else node._value()


def max_positions(loaded: Loaded) -> Any:
    """Return how long sentences may be for the task and all models."""
    from fairseq import utils

    return utils.resolve_max_positions(loaded.task.max_positions(), *(model.max_positions() for model in loaded.models))


def hypothesis_text(
    cfg: Any, loaded: Loaded, hypothesis: dict[str, Any], source_tokens: Any, source_words: Sequence[str]
) -> str:
    """Return the text of a hypothesis, in which ``--replace-unk`` has replaced unknown words."""
    dictionary, post_process = loaded.task.target_dictionary, cfg.common_eval.post_process
    tokens = hypothesis["tokens"].int().cpu()
    if loaded.unknown_words is None:
        text: str = dictionary.string(tokens, post_process, extra_symbols_to_ignore=loaded.hidden)
        return text
    from fairseq.data.data_utils import post_process as joined

    symbols = loaded.unknown_words.replaced(hypothesis, source_tokens, source_words, loaded.hidden)
    text = joined(" ".join(symbols), post_process)
    return text


def hypothesis_lines(cfg: Any, loaded: Loaded, number: int, hypothesis: dict[str, Any], text: str) -> Iterator[str]:
    """Yield what is printed of a hypothesis: its score and text, and what options ask for."""
    score = hypothesis["score"] / _BASE
    yield f"H-{number}\t{score}\t{text}"
    yield f"D-{number}\t{score}\t{loaded.decode(text)}"
    token_scores = (hypothesis["positional_scores"] / _BASE).tolist()
    yield f"P-{number}\t{' '.join(f'{value:.4f}' for value in token_scores)}"
    alignment = cfg.generation.print_alignment
    if alignment == "soft":
        yield f"A-{number}\t{' '.join(','.join(row) for row in hypothesis['alignment'])}"
    elif alignment:
        yield f"A-{number}\t{' '.join(f'{source}-{target}' for source, target in hypothesis['alignment'])}"
    if cfg.generation.print_step:
        yield f"I-{number}\t{hypothesis['steps']}"
    if cfg.generation.retain_iter_history:
        for step, earlier in enumerate(hypothesis["history"]):
            yield f"E-{number}_{step}\t{loaded.task.target_dictionary.string(earlier['tokens'].int().cpu())}"


def translate_data(cfg: Any, output: IO[str]) -> Any:
    """Translate a subset of binarized data, a shard of it if asked for; return the scorer.

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
    iterator = loaded.task.get_batch_iterator(
        dataset=dataset,
        max_tokens=cfg.dataset.max_tokens,
        max_sentences=_batch_size(cfg, len(dataset)),
        max_positions=max_positions(loaded),
        ignore_invalid_inputs=cfg.dataset.skip_invalid_size_inputs_valid_test,
        required_batch_size_multiple=cfg.dataset.required_batch_size_multiple,
        seed=cfg.common.seed,
        num_shards=max(cfg.dataset.num_shards, cfg.distributed_training.distributed_world_size),
        shard_id=max(cfg.dataset.shard_id, cfg.distributed_training.distributed_rank),
        num_workers=cfg.dataset.num_workers,
        data_buffer_size=cfg.dataset.data_buffer_size,
    ).next_epoch_itr(shuffle=False)
    progress = progress_bar.progress_bar(
        iterator,
        log_format=cfg.common.log_format,
        log_interval=cfg.common.log_interval,
        default_log_format=("tqdm" if not cfg.common.no_progress_bar else "simple"),
    )
    scorer = scoring.build_scorer(_scoring(cfg), loaded.task.target_dictionary)

    timer, speed, sentences, is_scored = StopwatchMeter(), TimeMeter(), 0, True
    for sample in progress:
        if "net_input" not in sample:  # fills up a shard that has a batch less than others
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
            _print_sentence(cfg, loaded, dataset, sample, row, hypotheses, scorer, output)
        speed.update(tokens)
        progress.log({"wps": round(speed.avg)})
        sentences += sample["nsentences"] if "nsentences" in sample else sample["id"].numel()

    logger.info("NOTE: hypothesis and token scores are output in base 2")
    seconds = max(float(timer.sum), 1e-9)  # 0 where a shard has no sentence
    logger.info(
        f"Translated {sentences:,} sentences ({timer.n:,} tokens) in {timer.sum:.1f}s ({sentences / seconds:.2f} "
        f"sentences/s, {timer.n / seconds:.2f} tokens/s)"
    )
    if is_scored:
        if cfg.bpe and not cfg.generation.sacrebleu:
            scored = "by splitting detokenized text at spaces" if cfg.common_eval.post_process else "of subwords"
            logger.warning("BLEU is computed %s; --sacrebleu computes it of words, as papers do", scored)
        result = scorer.result_string()
        print(f"Generate {cfg.dataset.gen_subset} with beam={cfg.generation.beam}: {result}", file=output)
    return scorer


def _batch_size(cfg: Any, sentences: int) -> int | None:
    """Return the sentences that a batch may have: of few, every shard gets a part."""
    limit: int | None = cfg.dataset.batch_size
    if cfg.dataset.num_shards == 1:
        return limit
    share = max(1, math.ceil(sentences / cfg.dataset.num_shards))
    return share if limit is None else min(limit, share)


def _scoring(cfg: Any) -> Any:
    """Return how translations are scored: as asked for with ``--scoring``, and with ``--sacrebleu`` by sacrebleu."""
    if not cfg.generation.sacrebleu or getattr(cfg.scoring, "_name", None) == "sacrebleu":
        return cfg.scoring
    from fairseq.scoring.bleu import SacrebleuConfig
    from omegaconf import OmegaConf

    return OmegaConf.structured(SacrebleuConfig(_name="sacrebleu"))


def _print_sentence(
    cfg: Any, loaded: Loaded, dataset: Any, sample: dict[str, Any], row: int, hypotheses: Sequence[dict[str, Any]],
    scorer: Any, output: IO[str],
) -> None:  # fmt: skip
    """Print source, reference and hypotheses of one sentence of a batch, and score the best hypothesis."""
    from fairseq import utils

    target_dictionary, source_dictionary = loaded.task.target_dictionary, loaded.source_dictionary
    post_process, is_printed = cfg.common_eval.post_process, not cfg.common_eval.quiet
    number, pad = int(sample["id"][row]), target_dictionary.pad()
    source_tokens, source, source_words = None, "", []
    if "src_tokens" in sample["net_input"]:
        source_tokens = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
    if loaded.unknown_words is not None:
        source = _original_text(dataset.src, number)
        source_words = source.split()
    elif source_dictionary is not None:
        source = source_dictionary.string(source_tokens, post_process)
    if source_dictionary is not None and is_printed:
        print(f"S-{number}\t{loaded.decode(source)}", file=output)

    target, target_tokens = None, None
    if sample["target"] is not None:
        target_tokens = utils.strip_pad(sample["target"][row], pad).int().cpu()
        if loaded.unknown_words is not None:
            target = loaded.decode(_original_text(dataset.tgt, number))
        else:
            hidden = loaded.hidden
            text = target_dictionary.string(
                target_tokens, post_process, escape_unk=True, extra_symbols_to_ignore=hidden
            )
            target = loaded.decode(text)
        if is_printed:
            print(f"T-{number}\t{target}", file=output)

    for rank, hypothesis in enumerate(hypotheses[: cfg.generation.nbest]):
        text = hypothesis_text(cfg, loaded, hypothesis, source_tokens, source_words)
        if is_printed:
            for line in hypothesis_lines(cfg, loaded, number, hypothesis, text):
                print(line, file=output)
        if target is None or rank > 0:
            continue
        detokenized = loaded.decode(text)
        if hasattr(scorer, "add_string"):
            in_reference, in_translation = _UNKNOWN_WORDS
            scorer.add_string(
                target.replace(target_dictionary.unk_string(escape=True), in_reference),
                detokenized.replace(target_dictionary.unk_string(), in_translation),
            )
        elif loaded.unknown_words is None and post_process is None:
            scorer.add(loaded.words(target_tokens), loaded.words(hypothesis["tokens"]))
        else:  # words instead of subwords
            reference = target_dictionary.encode_line(target, add_if_not_exist=True)
            scorer.add(reference, target_dictionary.encode_line(detokenized, add_if_not_exist=True))


def _original_text(dataset: Any, number: int) -> str:
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
    longest = max_positions(loaded)
    pad = loaded.task.target_dictionary.pad()
    # A language model may go on from nothing; there is nothing to translate in an empty line.
    reads_text = all(hasattr(model, "encoder") for model in loaded.models)
    if cfg.generation.constraints:
        logger.warning("NOTE: Constrained decoding currently assumes a shared subword vocabulary.")
    if cfg.interactive.buffer_size > 1:
        logger.info("Sentence buffer size: %s", cfg.interactive.buffer_size)
    logger.info("NOTE: hypothesis and token scores are output in base 2")
    logger.info("Type the input sentence and press return:")
    first = 0
    for lines in buffers:
        results = []
        # make_batches takes constraints away from lines with tabs.
        for batch in make_batches(lines, cfg, loaded.task, longest, loaded.encode):
            sample = loaded.moved({"net_input": {"src_tokens": batch.src_tokens, "src_lengths": batch.src_lengths}})
            constraints: Any = None if batch.constraints is None else batch.constraints.to(loaded.device)
            began = time.time()
            translations = loaded.task.inference_step(loaded.generator, loaded.models, sample, constraints=constraints)
            elapsed = time.time() - began
            seconds += elapsed
            for row, (line, hypotheses) in enumerate(zip(batch.ids.tolist(), translations, strict=False)):
                if reads_text and not loaded.encode(lines[line]).split():
                    hypotheses = [_EMPTY]
                source_tokens = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
                asked = unpack_constraints(constraints[row]) if cfg.generation.constraints else []
                results.append((line, source_tokens, hypotheses, asked, elapsed / len(translations)))
        for line, source_tokens, hypotheses, asked, elapsed in sorted(results, key=lambda result: result[0]):
            source_words = loaded.encode(lines[line]).split() if loaded.unknown_words is not None else []
            _print_line(cfg, loaded, first + line, source_tokens, source_words, hypotheses, asked, elapsed)
        first += len(lines)
    logger.info("Total time: %.3f seconds; translation time: %.3f", time.time() - started, seconds)


def _print_line(
    cfg: Any, loaded: Loaded, number: int, source_tokens: Any, source_words: Sequence[str],
    hypotheses: Sequence[dict[str, Any]], constraints: Sequence[Any], seconds: float,
) -> None:  # fmt: skip
    """Print a line of text, the constraints of its translation, and hypotheses."""
    post_process = cfg.common_eval.post_process
    if loaded.source_dictionary is not None:
        print(f"S-{number}\t{loaded.source_dictionary.string(source_tokens, post_process)}")
        print(f"W-{number}\t{seconds:.3f}\tseconds")
        for constraint in constraints:
            print(f"C-{number}\t{loaded.task.target_dictionary.string(constraint, post_process)}")
    for hypothesis in hypotheses[: cfg.generation.nbest]:
        text = hypothesis_text(cfg, loaded, hypothesis, source_tokens, source_words)
        for printed in hypothesis_lines(cfg, loaded, number, hypothesis, text):
            print(printed)
