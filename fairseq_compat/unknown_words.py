"""``--replace-unk``: an unknown word of a translation becomes the source word that it attends to, or its table entry.

fairseq uses an alignment between subword tokens to index into words. ``fairseq-interactive`` copies the source word
from the dictionary's string, which is ``<unk>`` for an unknown word. Here tokens are copied from the source text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.text import decoded

#: Values of the option without a file; the second is what fairseq's option parser sets then.
_NO_FILE = ("", "@@ ")


class UnknownWords:
    """Replaces unknown words of translations.

    Args:
        table: a file with a source word and its translation in each line; empty to copy source words.
        task: the models' task, for its dictionaries.
        alignment_type: ``hard`` or ``soft``: the alignment that generation returns.
    """

    def __init__(self, table: str, task: Any, alignment_type: str) -> None:
        self.alignment_type = alignment_type
        self._source, self._target = task.source_dictionary, task.target_dictionary
        self._table = {} if table in _NO_FILE else read_table(table)

    def replace(
        self, hypothesis: dict[str, Any], source_tokens: Any, source_words: Sequence[str], hidden: set[int]
    ) -> list[str]:
        """Return the hypothesis as strings, unknown words replaced and ``hidden`` tokens left out.

        Args:
            hypothesis: a result of generation, with its alignment.
            source_tokens: S token ids, without padding.
            source_words: the tokens of the source text; the ids may have language tokens around them.
            hidden: the ids of tokens that are not text, such as language tokens.
        """
        # Positions are counted in three ways: among the source tokens without </s>, among the source words (less by
        # the offset), and among the target tokens without </s>.
        dictionary = self._target
        source_ids = [token for token in source_tokens.tolist() if token != self._source.eos()]
        offset = self._word_offset(source_ids, source_words)
        source_of_target = self._aligned_positions(hypothesis["alignment"], source_tokens.tolist())
        symbols = []
        position = 0
        for token in hypothesis["tokens"].tolist():
            if token in (dictionary.eos(), dictionary.pad()):
                continue
            symbol = dictionary[token]
            index = source_of_target.get(position, -1) - offset  # negative if there is no source word
            if token == dictionary.unk() and 0 <= index < len(source_words):
                symbol = self._table.get(source_words[index], source_words[index])
            if token not in hidden and token != dictionary.bos():
                symbols.append(symbol)
            position += 1
        return symbols

    def _word_offset(self, tokens: Sequence[int], words: Sequence[str]) -> int:
        """Return the position of the first word among the source tokens; a language token may come before it."""
        word_ids = [self._source.index(word) for word in words]
        for offset in range(len(tokens) - len(word_ids) + 1):
            if tokens[offset : offset + len(word_ids)] == word_ids:
                return offset
        return 0

    def _aligned_positions(self, alignment: Sequence[Any], source_tokens: Sequence[int]) -> dict[int, int]:
        """Return target position -> aligned source position; neither counts ``</s>``."""
        if self.alignment_type == "hard":
            return {int(target): int(source) for source, target in alignment}
        # Soft: a row of weights for each target token, with a column for each source token.
        columns = [column for column, token in enumerate(source_tokens) if token != self._source.eos()]
        aligned = {}
        for target, row in enumerate(alignment):
            if columns:  # not if the source is empty
                weights = [float(row[column]) for column in columns]
                aligned[target] = weights.index(max(weights))
        return aligned


def read_table(path: str) -> dict[str, str]:
    """Return the translations of a file that has a source word and its translation in each line.

    Raises:
        UserError: a line does not have exactly two words, or is not UTF-8.
    """
    require_file(path)
    table = {}
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            words = decoded(line, number, path).split()
            if len(words) != 2:
                problem = f"--replace-unk {path}: line {number} has {len(words)} words"
                raise UserError(f"{problem}; give a word and its translation")
            table[words[0]] = words[1]
    return table
