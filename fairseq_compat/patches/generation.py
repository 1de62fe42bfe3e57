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
from fairseq_compat.commands.generation import require_recorded
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
    """``fairseq-generate`` empties earlier results before it has read its options, and writes through links.

    It ignores ``--num-shards``, ``--shard-id`` and ``--sacrebleu``, stops after the first sentence with
    ``--print-step``, ``--retain-iter-history`` and ``--constraints``, and ``--replace-unk`` fails, or inserts wrong
    words. Here all options are checked first, :mod:`fairseq_compat.commands.generation` implements them, and results
    are written to a temporary file that is renamed at the end.
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
            raise UserError("--constraints: binarized data has none; use fairseq-interactive, with them after a tab")
        if cfg.generation.replace_unk is not None and cfg.dataset.dataset_impl != "raw":
            raise UserError(
                "--replace-unk copies words of the text, which binarized data does not contain; make the data with "
                "fairseq-preprocess --dataset-impl raw and give --dataset-impl raw, or use fairseq-interactive"
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
    """Open a text file that gets its name when it is complete; then remove the log handlers that write to it."""
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
    """``fairseq-interactive`` stops after the first sentence with ``--replace-unk``, and with soft alignments.

    It ignores ``--print-step``, ``--lm-path`` and others, and invents a translation for an empty line. Here it treats
    each line as ``fairseq-generate`` treats a sentence, and an empty line stays empty.
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
                # --num-shards 1, the default, means that there are no shards.
                if value not in (None, False, 0) and (name, value) != ("num_shards", 1):
                    raise UserError(f"--{name.replace('_', '-')} {value} is for fairseq-generate; leave it out")
        utils.import_user_module(cfg.common)
        cfg.interactive.buffer_size = max(1, cfg.interactive.buffer_size)
        if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
            cfg.dataset.batch_size = 1
        size, buffered = cfg.dataset.batch_size, cfg.interactive.buffer_size
        if size and size > buffered:
            raise UserError(
                f"--batch-size {size} is more than --buffer-size {buffered}, the number of lines read at once"
            )
        buffers = module.buffered_read(cfg.interactive.input, buffered)
        translate_lines(cfg, buffers, module.make_batches)


def _require_generation_options(cfg: Any) -> None:
    """Raise UserError unless a command has a model, and consistent generation options."""
    if cfg.common_eval.path is None:
        raise UserError("--path is missing; give the checkpoint of the model, or several separated by :")
    require_generation(cfg.generation)
    require_post_process("--post-process", cfg.common_eval.post_process)


def _require_shard(cfg: Any) -> None:
    """Raise UserError unless ``--shard-id`` is one of ``--num-shards``."""
    shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
    if shards < 1 or not 0 <= shard < shards:
        raise UserError(f"--shard-id {shard} is out of range for --num-shards {shards}; give 0 to {max(shards, 1) - 1}")


#: Whether overlong blocks are skipped. ``fairseq-eval-lm`` does not pass its option to the task; programs skip them.
_evaluation = SimpleNamespace(skips=True)


@patch("fairseq_cli.eval_lm", function="main")
def check_eval_lm_options(original: Any, cfg: Any, **kwargs: Any) -> Any:
    """``fairseq-eval-lm`` stops with an assertion where ``--context-window`` leaves no token to evaluate.

    The window is a part of ``--tokens-per-sample``, so here it must be smaller. It has the tokens of the previous
    batch, which is silently another one if several processes load data: here only one does. It is refused with
    shards, where the previous batch is in another shard.
    """
    cfg = as_configuration(cfg)
    require_recorded(dictionary("--model-overrides", cfg.common_eval.model_overrides), cfg)
    _require_shard(cfg)
    window, tokens = cfg.eval_lm.context_window, getattr(cfg.task, "tokens_per_sample", None)
    if window < 0 or (tokens is not None and window >= tokens):
        raise UserError(
            f"--context-window {window} leaves none of --tokens-per-sample {tokens} to evaluate; give a smaller "
            "window, or more tokens"
        )
    if window > 0:
        if cfg.dataset.num_shards > 1:
            shards = cfg.dataset.num_shards
            raise UserError(f"--context-window {window} needs the text in order; leave --num-shards {shards} out")
        cfg.dataset.num_workers = min(cfg.dataset.num_workers, 1)
    _evaluation.skips = cfg.dataset.skip_invalid_size_inputs_valid_test
    symbol = cfg.common_eval.post_process
    if symbol not in (None, "subword_nmt", "@@ "):
        raise UserError(
            f"--post-process {symbol!r} is not supported by fairseq-eval-lm; give subword_nmt or leave it out"
        )
    return original(cfg, **kwargs)


@patch("fairseq.tasks.language_modeling", before="LanguageModelingTask.eval_lm_dataloader")
def refuse_overlong_blocks(self: Any, dataset: Any, max_positions: Any) -> None:
    """``fairseq-eval-lm`` skips blocks that are longer than the model allows, and prints the perplexity of the rest.

    With ``--tokens-per-sample`` above that of the training, only the end of the text remains. Here such blocks are
    refused, unless ``--skip-invalid-size-inputs-valid-test`` is given.
    """
    if not _evaluation.skips and max_positions is not None:
        self.filter_indices_by_size(dataset.ordered_indices(), dataset, max_positions)


@patch("fairseq_cli.eval_lm", function="eval_lm")
def refuse_empty_shards(original: Any, models: Any, source_dictionary: Any, batch_iterator: Any, **options: Any) -> Any:
    """For a shard of ``--num-shards`` without a batch, ``fairseq-eval-lm`` prints a perplexity of 1.

    Here such a shard is refused.
    """
    batches = iter(batch_iterator)
    first: dict[str, Any] = next(batches, {})
    if "net_input" not in first:  # an empty batch, which pads a shard with fewer batches than the others
        raise UserError("the shard of --shard-id has no batch; give fewer --num-shards, or a smaller --batch-size")
    return original(models, source_dictionary, chain([first], batches), **options)


@patch("fairseq.utils", function="load_align_dict")
def read_replacement_table(original: Any, replace_unk: str | None) -> dict[str, str] | None:
    """``--replace-unk`` without a file looks for a file named ``@@``, and an empty line in a file is an IndexError.

    Here no file is needed, wrong lines are named, and the file is read as UTF-8, whatever the locale.
    """
    from fairseq_compat.unknown_words import read_table

    if replace_unk is None:
        return None
    return {} if replace_unk in ("", "@@ ") else read_table(replace_unk)


@patch("fairseq.sequence_generator", before="SequenceGenerator._generate")
def check_min_len(self: Any, sample: dict[str, Any]) -> None:
    """A ``--min-len`` above what the source length or the model allows fails an assertion in the middle of a text.

    Here an error names the options.
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
    """``--sampling-topk`` above the size of the dictionary ends in ``selected index k out of range``.

    Here it is limited to the size of the dictionary.
    """
    original(self, tgt_dict, min(sampling_topk, len(tgt_dict)), sampling_topp)


@patch("fairseq.models.bart.model", function="BARTModel.set_beam_size")
def ignore_bart_beam_size(original: Any, self: Any, beam: int) -> None:
    """A BART model treats every batch as the beam of its last search, so that it attends to the wrong sentences.

    With ``--eval-bleu`` its training stops (``shape ... is invalid for input of size``), or attends to one of five
    sources. Here the model ignores the beam size; each hypothesis of a beam attends to its own copy of the source.
    """


@patch("fairseq.modules.beamable_mm", function="BeamableMM.__init__")
def ignore_convolution_beam_size(original: Any, self: Any, beam_size: int | None = None) -> None:
    """``translate(texts, beam=1)`` of a convolutional model translates the first of five texts five times.

    Its attention assumes the beam size with which the model was loaded. Here it works for any beam size.
    """
    original(self)


@patch("fairseq.search", function="Sampling.step")
def rescale_tiny_probabilities(original: Any, self: Any, step: int, lprobs: Any, *args: Any, **kwargs: Any) -> Any:
    """With ``--sampling --temperature 0.01`` the probabilities of all possible next tokens can underflow to 0.

    PyTorch then refuses to sample. Here they are divided by the highest one in log space.
    """
    highest = lprobs.amax(dim=-1, keepdim=True)
    lprobs = torch.where(highest < _MIN_LOG_PROBABILITY, lprobs - highest, lprobs)
    return original(self, step, lprobs, *args, **kwargs)


@patch("fairseq.ngram_repeat_block")
def block_repeated_ngrams(module: Any) -> None:
    """``--no-repeat-ngram-size`` blocks nothing: fairseq compares n-grams with the padding after a hypothesis.

    With 1 it blocks the end-of-sentence token. Here the tokens of the hypothesis are compared. A forced token, such as
    one of a prefix or the end at maximum length, is never blocked.
    """
    module.NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def _no_repeat_ngram(self: Any, tokens: Any, lprobs: Any, bsz: int, beam_size: int, step: int) -> Any:
    """Set the log-probabilities (B * beam x V) of tokens that would repeat an n-gram to minus infinity; return them.

    Of ``tokens`` (B * beam x T) the first ``step`` + 1 are known; the very first is the start symbol.
    """
    size = self.no_repeat_ngram_size
    known = tokens[:, 1 : step + 1].tolist()
    for row, hypothesis in enumerate(known):
        # A token repeats an n-gram if it has followed the last n - 1 tokens before.
        last = hypothesis[len(hypothesis) - size + 1 :] if size > 1 else []
        banned = _find_following(hypothesis, last)
        if not banned:
            continue
        blocked = lprobs[row].clone()
        blocked[torch.tensor(banned, device=lprobs.device)] = -math.inf
        # If no other token is possible, the repetition is forced.
        if torch.isfinite(blocked).any():
            lprobs[row] = blocked
    return lprobs


def _find_following(hypothesis: Sequence[int], last: Sequence[int]) -> list[int]:
    """Return the tokens that follow each occurrence of ``last`` in a hypothesis."""
    size = len(last)
    following = []
    for first in range(len(hypothesis) - size):
        if hypothesis[first : first + size] == last:
            following.append(hypothesis[first + size])
    return following


@patch("fairseq.hub_utils")
def return_one_translation_per_text(module: Any) -> None:
    """``translate(..., skip_invalid_size_inputs=True)`` returns fewer translations than texts, without saying which.

    ``translate(texts, inference_step_args=...)`` gives each text the constraints of another one, because batches are
    ordered by length. An empty text gets a translation, and those of multilingual models contain language tokens.

    Here the translation of a skipped or empty text is ``""``; a skipped text has no hypotheses and no score. With
    ``inference_step_args`` each text is translated separately, with its own row of each tensor.
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
    """Return the hypotheses of each sentence, or of a single sentence (T); a skipped sentence has none."""
    is_one = torch.is_tensor(tokenized_sentences) and tokenized_sentences.dim() == 1
    sentences = [tokenized_sentences] if is_one else list(tokenized_sentences)
    numbers = list(range(len(sentences)))
    if skip_invalid_size_inputs:
        numbers = []
        for batch in self._build_batches(sentences, skip_invalid_size_inputs=True):
            numbers += batch["id"].tolist()
        numbers.sort()

    translations: list[Any] = []
    if inference_step_args:
        for number in numbers:
            arguments = _select_arguments(number, inference_step_args)
            translations += original(self, [sentences[number]], beam, verbose, inference_step_args=arguments, **kwargs)
    elif numbers:
        translations = original(self, [sentences[number] for number in numbers], beam, verbose, **kwargs)
    # Skipped sentences keep an empty list of hypotheses.
    outputs: list[Any] = [[] for _ in sentences]
    for number, hypotheses in zip(numbers, translations, strict=True):
        outputs[number] = hypotheses
    return outputs[0] if is_one else outputs


def _select_arguments(number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of one sentence: its row of each tensor."""
    rows = {}
    for name, value in arguments.items():
        has_rows = torch.is_tensor(value) and value.dim() > 1
        rows[name] = value[number : number + 1] if has_rows else value
    return rows
