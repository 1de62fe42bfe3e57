"""Patches of generation: what ``fairseq-generate``, ``-interactive`` and ``-eval-lm`` accept, compute and write.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import io
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import SimpleNamespace
from typing import IO, Any

import torch

from fairseq_compat import files
from fairseq_compat.commands.generation import require_path, require_recorded
from fairseq_compat.errors import UserError
from fairseq_compat.generation_options import require_generation, require_post_process
from fairseq_compat.literals import dictionary
from fairseq_compat.patching import as_configuration, patch, replaces

#: The logarithm of the smallest normal float32 number; below it, probabilities lose digits, and become 0.
_MIN_LOG_PROBABILITY = math.log(torch.finfo(torch.float32).tiny)

#: Options of fairseq-generate that fairseq-interactive accepts and ignores: group -> names.
_GENERATE_OPTIONS = {
    "common_eval": ("results_path", "quiet"),
    "generation": ("sacrebleu", "prefix_size", "score_reference"),
    "dataset": ("num_shards", "shard_id"),
}


@patch("fairseq_cli.generate")
def translate_binarized_data(module: Any) -> None:
    """``fairseq-generate`` truncates an existing results file before checking its options, and follows symbolic links.

    It ignores ``--num-shards``, ``--shard-id`` and ``--sacrebleu``. It crashes after the first sentence with
    ``--print-step``, ``--retain-iter-history`` or ``--constraints``. ``--replace-unk`` crashes or inserts wrong words.

    This patch checks all options first, writes results to a temporary file that is renamed at the end, and leaves the
    work to :mod:`fairseq_compat.commands.generation`.
    """
    from fairseq import utils

    @replaces(module, "_main")
    def _main(original: Any, cfg: Any, output_file: IO[str]) -> Any:
        from fairseq_compat.commands.generation import translate_data

        logging.basicConfig(
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            stream=output_file,
        )
        utils.import_user_module(cfg.common)
        return translate_data(cfg, output_file)

    @replaces(module, "main")
    def main(original: Any, cfg: Any) -> Any:
        cfg = as_configuration(cfg)
        _require_generation_options(cfg)
        if cfg.generation.constraints is not None:
            raise UserError(
                "--constraints has no effect on binarized data; use fairseq-interactive, with the constraints after a "
                "tab in each line"
            )
        if cfg.generation.replace_unk is not None and cfg.dataset.dataset_impl != "raw":
            raise UserError(
                "--replace-unk copies words of the source text, which binarized data lacks; preprocess and generate "
                "with --dataset-impl raw, or use fairseq-interactive"
            )
        _require_shard(cfg)
        folder = cfg.common_eval.results_path
        if folder is None:
            return module._main(cfg, sys.stdout)
        os.makedirs(folder, exist_ok=True)
        with _open_results(os.path.join(folder, f"generate-{cfg.dataset.gen_subset}.txt")) as file:
            return module._main(cfg, file)


@contextmanager
def _open_results(path: str) -> Iterator[IO[str]]:
    """Open a text file that is renamed into place on success; then remove the log handlers that write to it."""
    with files.atomic_write(path) as binary:
        text = io.TextIOWrapper(binary, encoding="utf-8")
        try:
            yield text
        finally:
            # basicConfig made a handler for this file, which is about to be closed.
            root = logging.getLogger()
            for handler in root.handlers[:]:
                if getattr(handler, "stream", None) is text:
                    root.removeHandler(handler)
            text.detach()  # flushes, and leaves the file open for atomic_write


@patch("fairseq_cli.interactive")
def translate_input_lines(module: Any) -> None:
    """``fairseq-interactive`` crashes after the first sentence with ``--replace-unk`` or soft alignments.

    It ignores ``--print-step``, ``--lm-path`` and other options, and translates an empty line into made-up text.

    This patch makes it treat each line as ``fairseq-generate`` treats a sentence; an empty line stays empty.
    """
    from fairseq import utils

    @replaces(module, "main")
    def main(original: Any, cfg: Any) -> None:
        from fairseq_compat.commands.generation import translate_lines

        cfg = as_configuration(cfg)
        _require_generation_options(cfg)
        for group, names in _GENERATE_OPTIONS.items():
            for name in names:
                value = cfg[group][name]
                is_default = value in (None, False, 0) or (name == "num_shards" and value == 1)
                if not is_default:
                    raise UserError(f"--{name.replace('_', '-')} {value} is for fairseq-generate; leave it out")
        utils.import_user_module(cfg.common)
        cfg.interactive.buffer_size = max(1, cfg.interactive.buffer_size)
        if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
            cfg.dataset.batch_size = 1
        size, buffered = cfg.dataset.batch_size, cfg.interactive.buffer_size
        if size and size > buffered:
            raise UserError(
                f"--batch-size {size} is larger than --buffer-size {buffered}, the number of lines read at a time"
            )
        buffers = module.buffered_read(cfg.interactive.input, buffered)
        translate_lines(cfg, buffers, module.make_batches)


def _require_generation_options(cfg: Any) -> None:
    """Raise UserError unless a command has a model, and consistent generation options."""
    require_path(cfg, several=True)
    require_generation(cfg.generation)
    require_post_process("--post-process", cfg.common_eval.post_process)


def _require_shard(cfg: Any) -> None:
    """Raise UserError unless ``--shard-id`` is one of ``--num-shards``."""
    shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
    if shards < 1 or not 0 <= shard < shards:
        raise UserError(f"--shard-id {shard} is out of range for --num-shards {shards}; give 0 to {max(shards, 1) - 1}")


#: Whether overlong blocks are skipped. ``fairseq-eval-lm`` has ``--skip-invalid-size-inputs-valid-test`` for this, but
#: does not pass it to the task. For other callers of the task they are skipped, as in fairseq.
_evaluation = SimpleNamespace(skip_overlong=True)


@patch("fairseq_cli.eval_lm", function="main")
def check_eval_lm_options(original: Any, cfg: Any, **kwargs: Any) -> Any:
    """``fairseq-eval-lm`` fails an assertion if ``--context-window`` leaves no token, and stops without ``--path``.

    The window counts towards ``--tokens-per-sample`` and repeats the end of the previous batch. With several data
    workers, "previous" is silently the wrong batch. A shard lacks the previous batch.

    This patch refuses a window that leaves no token, uses at most one data worker, and refuses ``--num-shards``.
    """
    cfg = as_configuration(cfg)
    require_path(cfg)
    require_recorded(dictionary("--model-overrides", cfg.common_eval.model_overrides), cfg)
    _require_shard(cfg)
    window, tokens = cfg.eval_lm.context_window, getattr(cfg.task, "tokens_per_sample", None)
    if tokens is not None and window >= tokens:
        raise UserError(f"--context-window {window} must be less than --tokens-per-sample {tokens}")
    if window > 0:
        if cfg.dataset.num_shards > 1:
            shards = cfg.dataset.num_shards
            raise UserError(f"--context-window {window} needs the text in order; leave --num-shards {shards} out")
        cfg.dataset.num_workers = min(cfg.dataset.num_workers, 1)
    _evaluation.skip_overlong = cfg.dataset.skip_invalid_size_inputs_valid_test
    symbol = cfg.common_eval.post_process
    if symbol not in (None, "subword_nmt", "@@ "):
        raise UserError(
            f"--post-process {symbol!r} is not supported by fairseq-eval-lm; give subword_nmt or leave it out"
        )
    return original(cfg, **kwargs)


@patch("fairseq.tasks.language_modeling", before="LanguageModelingTask.build_model")
def require_language_model(args: Any) -> None:
    """A translation model given to ``fairseq-eval-lm`` ends in ``no attribute 'supported_targets'``.

    The same goes for the architecture of a translation model in a training with ``--task language_modeling``.

    This patch names the architecture.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    name = getattr(args, "_name", None) or getattr(args, "arch", None)
    model = {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}.get(name)
    if model is not None and not hasattr(model, "supported_targets"):
        raise UserError(f"--task language_modeling: {name} is not a language model; give one such as transformer_lm")


@patch("fairseq.tasks.language_modeling", before="LanguageModelingTask.eval_lm_dataloader")
def refuse_overlong_blocks(self: Any, dataset: Any, max_positions: Any) -> None:
    """``fairseq-eval-lm`` skips blocks that are longer than the model allows, and prints the perplexity of the rest.

    If ``--tokens-per-sample`` is above the training's, that skips all full blocks: only the end of the text is scored.

    This patch refuses such blocks, unless ``--skip-invalid-size-inputs-valid-test`` is given.
    """
    if not _evaluation.skip_overlong and max_positions is not None:
        self.filter_indices_by_size(dataset.ordered_indices(), dataset, max_positions)


@patch("fairseq_cli.eval_lm", function="eval_lm")
def refuse_empty_shards(original: Any, models: Any, source_dictionary: Any, batch_iterator: Any, **options: Any) -> Any:
    """``fairseq-eval-lm`` reports a perplexity of 1 for a shard of ``--num-shards`` that has no batch.

    This patch refuses such a shard.
    """
    batches = iter(batch_iterator)
    first: dict[str, Any] = next(batches, {})
    # fairseq pads short shards with empty batches.
    if "net_input" not in first:
        raise UserError("the shard of --shard-id has no batch; lower --num-shards or --batch-size")
    return original(models, source_dictionary, chain([first], batches), **options)


@patch("fairseq.utils", function="load_align_dict")
def read_replacement_table(original: Any, replace_unk: str | None) -> dict[str, str] | None:
    """``--replace-unk`` without a file tries to open a file named ``@@``, and an empty line in the file crashes it.

    This patch needs no file, names wrong lines, and reads the file as UTF-8, whatever the locale.
    """
    from fairseq_compat.unknown_words import read_table

    if replace_unk is None:
        return None
    return {} if replace_unk in ("", "@@ ") else read_table(replace_unk)


@patch("fairseq.sequence_generator", before="SequenceGenerator._generate")
def check_min_len(self: Any, sample: dict[str, Any]) -> None:
    """A ``--min-len`` above the longest translation allowed fails an assertion midway through the text.

    This patch raises an error that names the options.
    """
    inputs = sample["net_input"]
    sources = [inputs[name] for name in ("src_tokens", "source", "features") if name in inputs]
    if not sources or self.match_source_len:
        return
    length = sources[0].size(1)
    longest = min(int(self.max_len_a * length + self.max_len_b), self.max_len - 1)
    if self.min_len > longest:
        raise UserError(
            f"--min-len {self.min_len} is more than the {longest} tokens that a translation of {length} tokens may "
            "have; give a smaller one, or larger --max-len-a and --max-len-b"
        )


@patch("fairseq.search", function="Sampling.__init__")
def limit_topk_to_dictionary(
    original: Any, self: Any, tgt_dict: Any, sampling_topk: int = -1, sampling_topp: float = -1.0
) -> None:
    """``--sampling-topk`` above the size of the dictionary fails with ``selected index k out of range``.

    This patch lowers it to that size.
    """
    original(self, tgt_dict, min(sampling_topk, len(tgt_dict)), sampling_topp)


@patch("fairseq.models.bart.model", function="BARTModel.set_beam_size")
def ignore_bart_beam_size(original: Any, self: Any, beam: int) -> None:
    """A BART model keeps the beam size of its last search, and reads later batches as if they had that beam.

    It then attends to the wrong sentences: with ``--eval-bleu`` its training crashes (``shape ... is invalid for input
    of size``), or attends to one of five sources.

    This patch ignores the beam size: each hypothesis of a beam has its own copy of the source.
    """


@patch("fairseq.modules.beamable_mm", function="BeamableMM.__init__")
def ignore_convolution_beam_size(original: Any, self: Any, beam_size: int | None = None) -> None:
    """``translate(texts, beam=1)`` of a convolutional model translates the first of five texts five times.

    Its attention keeps the beam size with which the model was loaded. This patch ignores the beam size.
    """
    original(self)


@patch("fairseq.search", function="Sampling.step")
def rescale_tiny_probabilities(original: Any, self: Any, step: int, lprobs: Any, *args: Any, **kwargs: Any) -> Any:
    """With ``--sampling --temperature 0.01`` the probabilities of all possible next tokens can underflow to 0.

    PyTorch then refuses to sample. This patch divides them by the highest one in log space.
    """
    highest = lprobs.amax(dim=-1, keepdim=True)
    lprobs = torch.where(highest < _MIN_LOG_PROBABILITY, lprobs - highest, lprobs)
    return original(self, step, lprobs, *args, **kwargs)


@patch("fairseq.ngram_repeat_block")
def block_repeated_ngrams(module: Any) -> None:
    """``--no-repeat-ngram-size`` blocks nothing: fairseq compares n-grams with the padding after a hypothesis.

    With 1 it blocks the end-of-sentence token.

    This patch compares the tokens of the hypothesis. A forced token, such as one of a prefix or the end at maximum
    length, is never blocked.
    """
    module.NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def _no_repeat_ngram(self: Any, tokens: Any, lprobs: Any, bsz: int, beam_size: int, step: int) -> Any:
    """Set the log-probabilities (B * beam x V) of tokens that would repeat an n-gram to minus infinity; return them.

    The first ``step`` + 1 columns of ``tokens`` (B * beam x T) are filled; column 0 is the start token.
    """
    size = self.no_repeat_ngram_size
    known = tokens[:, 1 : step + 1].tolist()
    for row, hypothesis in enumerate(known):
        # A token is banned if it followed the last n - 1 tokens earlier in this hypothesis.
        context = hypothesis[len(hypothesis) - size + 1 :] if size > 1 else []
        banned = _find_following(hypothesis, context)
        if not banned:
            continue
        blocked = lprobs[row].clone()
        blocked[torch.tensor(banned, device=lprobs.device)] = -math.inf
        # If no other token is possible, the repetition is forced.
        if torch.isfinite(blocked).any():
            lprobs[row] = blocked
    return lprobs


def _find_following(hypothesis: Sequence[int], context: Sequence[int]) -> list[int]:
    """Return the tokens that follow each occurrence of ``context`` in a hypothesis."""
    size = len(context)
    following = []
    for start in range(len(hypothesis) - size):
        if hypothesis[start : start + size] == context:
            following.append(hypothesis[start + size])
    return following


@patch("fairseq.hub_utils")
def return_one_translation_per_text(module: Any) -> None:
    """``translate(..., skip_invalid_size_inputs=True)`` returns fewer translations than texts, without saying which.

    With ``inference_step_args``, texts get each other's arguments, because batches are sorted by length. An empty text
    is given a translation, and translations of multilingual models contain language tokens.

    With this patch the translation of a skipped or empty text is ``""``; a skipped text has no hypotheses and no score.
    With ``inference_step_args`` each text is translated separately, with its own row of each tensor.
    """
    replaces(module.GeneratorHubInterface, "generate")(_generate_for_each)

    @replaces(module.GeneratorHubInterface, "string")
    def string(original: Any, self: Any, tokens: Any) -> str:
        # A generator knows which tokens, such as language tokens, to hide; one generator serves all calls.
        if not hasattr(self, "hidden_symbols"):
            generator = self.task.build_generator(self.models, self.cfg.generation)
            self.hidden_symbols = getattr(generator, "symbols_to_strip_from_output", None)
        text: str = self.tgt_dict.string(tokens, extra_symbols_to_ignore=self.hidden_symbols)
        return text

    @replaces(module.GeneratorHubInterface, "sample")
    def sample(original: Any, self: Any, sentences: Any, beam: int = 1, verbose: bool = False, **kwargs: Any) -> Any:
        if isinstance(sentences, str):
            return self.sample([sentences], beam, verbose, **kwargs)[0]
        tokens = [self.encode(sentence) for sentence in sentences]
        # A language model may continue an empty text; a translation model has nothing to translate.
        reads_text = all(hasattr(model, "encoder") for model in self.models)
        texts = []
        for source, hypotheses in zip(tokens, self.generate(tokens, beam, verbose, **kwargs), strict=True):
            is_empty = not hypotheses or (reads_text and len(source) <= 1)
            texts.append("" if is_empty else self.decode(hypotheses[0]["tokens"]))
        return texts

    @replaces(module.GeneratorHubInterface, "score")
    def score(original: Any, self: Any, sentences: Any, replace_newline_with_eos: bool = False, **kwargs: Any) -> Any:
        if isinstance(sentences, str):
            return self.score([sentences], replace_newline_with_eos, **kwargs)[0]
        if not kwargs.get("skip_invalid_size_inputs"):
            return original(self, sentences, replace_newline_with_eos, **kwargs)
        tokens = []
        for sentence in sentences:
            lines = sentence.splitlines() if replace_newline_with_eos else [sentence]
            tokens.append(torch.cat([self.encode(line) for line in lines]))
        scores = []
        for hypotheses in self.generate(tokens, score_reference=True, **kwargs):
            scores.append(hypotheses[0] if hypotheses else None)
        return scores


def _generate_for_each(
    original: Any,
    self: Any,
    tokenized_sentences: Any,
    beam: int = 5,
    verbose: bool = False,
    skip_invalid_size_inputs: bool = False,
    inference_step_args: Any = None,
    **kwargs: Any,
) -> Any:
    """Return a list of hypotheses per sentence, empty if skipped; for a single 1-D sentence, just its list."""
    is_one = torch.is_tensor(tokenized_sentences) and tokenized_sentences.dim() == 1
    sentences = [tokenized_sentences] if is_one else list(tokenized_sentences)
    indices = list(range(len(sentences)))
    if skip_invalid_size_inputs:
        indices = []
        for batch in self._build_batches(sentences, skip_invalid_size_inputs=True):
            indices += batch["id"].tolist()
        indices.sort()

    translations: list[Any] = []
    if inference_step_args:
        for index in indices:
            arguments = _select_arguments(index, inference_step_args)
            translations += original(self, [sentences[index]], beam, verbose, inference_step_args=arguments, **kwargs)
    elif indices:
        translations = original(self, [sentences[index] for index in indices], beam, verbose, **kwargs)
    # Skipped sentences keep an empty list of hypotheses.
    outputs: list[Any] = [[] for _ in sentences]
    for index, hypotheses in zip(indices, translations, strict=True):
        outputs[index] = hypotheses
    return outputs[0] if is_one else outputs


def _select_arguments(index: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """Select one sentence's row from every argument that is a tensor of at least two dimensions."""
    selected = {}
    for name, value in arguments.items():
        has_rows = torch.is_tensor(value) and value.dim() > 1
        selected[name] = value[index : index + 1] if has_rows else value
    return selected
