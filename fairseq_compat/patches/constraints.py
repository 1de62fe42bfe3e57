"""Patches of lexical constraints: words that a translation has to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fairseq_compat.errors import UserError
from fairseq_compat.patching import patch, replaces


@patch("fairseq_cli.interactive", function="make_batches")
def words_of_constraints(
    original: Any, lines: list[str], cfg: Any, task: Any, max_positions: Any, encode: Callable[[str], str]
) -> Any:
    """A constraint that the dictionary does not have puts ``<unk>`` into the translation, and an empty one ends it all.

    Here the first is refused, and the second, as two tabs in a row make one, is none.
    """
    if cfg.generation.constraints:
        for number, line in enumerate(lines):
            text, *constraints = line.split("\t")
            lines[number] = "\t".join([text, *(words for words in constraints if encode(words).split())])
            for words in constraints:
                _require_known(encode(words), task.target_dictionary)
    return original(lines, cfg, task, max_positions, encode)


def _require_known(words: str, dictionary: Any) -> None:
    """Raise UserError unless a translation can have the words of a constraint."""
    for word in words.split():
        if dictionary.index(word) in (dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.unk()):
            raise UserError(
                f"--constraints: {word!r} is no word of the model's dictionary, so that no translation can have it; "
                "leave it out, or write it as the text of the training was written"
            )


@patch("fairseq.sequence_generator", function="SequenceGenerator._generate")
def lengths_of_constraints(
    original: Any, self: Any, sample: dict[str, Any], prefix_tokens: Any = None, constraints: Any = None, *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """Constraints that no translation can meet are an assertion in the middle of a text.

    They have more words than a translation may have, or ``</s>``.
    """
    if constraints is not None and constraints.size(1) > 1:
        length = sample["net_input"]["src_tokens"].size(1)
        longest = min(int(self.max_len_a * length + self.max_len_b), self.max_len - 1)
        for packed in constraints:
            _require_possible(self, packed, longest)
    return original(self, sample, prefix_tokens, constraints, *args, **kwargs)


def _require_possible(generator: Any, packed: Any, longest: int) -> None:
    """Raise UserError unless a translation of ``longest`` tokens can meet packed constraints."""
    from fairseq.token_generation_constraints import unpack_constraints

    tokens: list[int] = []
    for constraint in unpack_constraints(packed):
        tokens += constraint.tolist()
    words = generator.tgt_dict.string(tokens, include_eos=True)
    if len(tokens) > longest:
        raise UserError(
            f"the constraints {words!r} have {len(tokens)} tokens, and a translation may have {longest}; give fewer, "
            "or larger --max-len-a and --max-len-b"
        )
    if generator.eos in tokens or generator.pad in tokens:
        raise UserError(f"the constraints {words!r} have a symbol in them that is no word; leave it out")


@patch("fairseq.search", function="LexicallyConstrainedBeamSearch.init_constraints")
def missing_constraints(original: Any, self: Any, batch_constraints: Any, beam_size: int) -> None:
    """``translate(..., constraints=...)`` without the words is a ``TypeError``; a large beam is out of range."""
    if 2 * beam_size >= self.vocab_size:
        raise UserError(f"--beam {beam_size} is too large for constraints and a dictionary of {self.vocab_size:,}")
    if batch_constraints is None:
        raise UserError(
            "constraints is given without the words; give them as "
            "inference_step_args={'constraints': pack_constraints(...)} of fairseq.token_generation_constraints"
        )
    original(self, batch_constraints, beam_size)


@patch("fairseq.hub_utils")
def sentences_of_arguments(module: Any) -> None:
    """Of several texts, ``translate(texts, inference_step_args=...)`` gives each the constraints of another one.

    Their order is that of the texts, and a batch has its sentences in the order of their lengths. ``generate`` of one
    text ignores them. Here each text is translated by itself, with its own row of each argument.
    """

    @replaces(module.GeneratorHubInterface, "generate")
    def generate(
        original: Any, self: Any, tokenized_sentences: Any, *args: Any, inference_step_args: Any = None, **kwargs: Any
    ) -> Any:
        is_one = torch.is_tensor(tokenized_sentences) and tokenized_sentences.dim() == 1
        sentences = [tokenized_sentences] if is_one else tokenized_sentences
        if inference_step_args:
            translations = []
            for number, sentence in enumerate(sentences):
                own = {}
                for name, value in inference_step_args.items():
                    has_rows = torch.is_tensor(value) and value.dim() > 1
                    own[name] = value[number : number + 1] if has_rows else value
                translations += original(self, [sentence], *args, inference_step_args=own, **kwargs)
        else:
            translations = original(self, sentences, *args, **kwargs)
        return translations[0] if is_one else translations
