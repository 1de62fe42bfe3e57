"""Patches for lexical constraints: words that a translation must contain.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import patch


@patch("fairseq_cli.interactive", before="make_batches")
def refuse_unknown_constraint_words(lines: list[str], cfg: Any, task: Any, encode_fn: Callable[[str], str]) -> None:
    """A constraint with an unknown word puts ``<unk>`` into the translation, and an empty one crashes the command.

    Lines are "SOURCE<tab>CONSTRAINT<tab>CONSTRAINT". Here an unknown word is refused, and an empty constraint (two tabs
    in a row) is ignored.
    """
    if not cfg.generation.constraints:
        return
    dictionary = task.target_dictionary
    # index() returns unk for an unknown word, and the others for a text such as "</s>".
    no_words = (dictionary.bos(), dictionary.pad(), dictionary.eos(), dictionary.unk())
    for number, line in enumerate(lines):
        text, *constraints = line.split("\t")
        # In place: make_batches gets the same list.
        lines[number] = "\t".join([text, *(words for words in constraints if encode_fn(words).split())])
        for words in constraints:
            for word in encode_fn(words).split():
                if dictionary.index(word) in no_words:
                    raise UserError(
                        f"--constraints: {word!r} is not in the model's dictionary, so no translation can contain it; "
                        "leave it out, or write it as in the training data"
                    )


@patch("fairseq.sequence_generator", before="SequenceGenerator._generate")
def refuse_impossible_constraints(self: Any, sample: dict[str, Any], constraints: Any) -> None:
    """Constraints that no translation can satisfy fail an assertion in the middle of a text.

    They have more tokens than a translation may have, or contain ``</s>``, or the beam is too large for the dictionary.
    Here an error says which.
    """
    if constraints is not None and 2 * self.beam_size > len(self.tgt_dict):
        size = len(self.tgt_dict)
        raise UserError(f"--beam {self.beam_size} is too large for constraints and a dictionary of {size:,}")
    # B x packed length (fairseq's pack_constraints); a length of 1 is that of sentences without constraints.
    if constraints is not None and constraints.size(1) > 1:
        length = sample["net_input"]["src_tokens"].size(1)
        # As in _generate, without the end of sentence.
        longest = min(int(self.max_len_a * length + self.max_len_b), self.max_len - 1)
        for packed in constraints:
            _require_satisfiable(self, packed, longest)


def _require_satisfiable(generator: Any, packed: Any, longest: int) -> None:
    """Raise UserError unless a translation of ``longest`` tokens can satisfy packed constraints."""
    from fairseq.token_generation_constraints import unpack_constraints

    tokens: list[int] = []
    for constraint in unpack_constraints(packed):
        tokens += constraint.tolist()
    words = generator.tgt_dict.string(tokens, include_eos=True)  # for errors
    if len(tokens) > longest:
        problem = f"the constraints {words!r} have {len(tokens)} tokens, and a translation may have {longest}"
        raise UserError(f"{problem}; give fewer, or larger --max-len-a and --max-len-b")
    if generator.eos in tokens or generator.pad in tokens:
        raise UserError(f"the constraints {words!r} contain a symbol that is not a word; leave it out")
