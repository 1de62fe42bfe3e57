"""``--replace-unk``: an unknown word of a translation becomes the source word that it attends to, or its table entry.

fairseq finds words by the numbers of tokens, which differ where tokens are subwords, and takes the source word out of
the dictionary, where it is unknown as well. Here tokens are replaced by tokens of the source text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.text import decoded

#: The value of the option without a file, in fairseq's option parser.
_NO_FILE = ("", "@@ ")


class UnknownWords:
    """Replaces unknown words of translations.

    Args:
        table: a file with a source word and its translation in each line; empty for none, which copies words.
        task: of the models.
        alignment: the kind of alignment that the search gives, ``hard`` or ``soft``.
    """

    def __init__(self, table: str, task: Any, alignment: str) -> None:
        self.alignment = alignment
        self._source, self._target = task.source_dictionary, task.target_dictionary
        self._table = {} if table in _NO_FILE else read_table(table)

    def replaced(
        self, hypothesis: dict[str, Any], source_tokens: Any, source_words: Sequence[str], hidden: set[int]
    ) -> list[str]:
        """Return the symbols of a hypothesis without those that are ``hidden``.

        Args:
            hypothesis: with an alignment.
            source_tokens: numbers of the source, without padding (S).
            source_words: the tokens of the source text; the model may have read others around them.
            hidden: tokens that are no text.
        """
        dictionary = self._target
        numbers = [token for token in source_tokens.tolist() if token != self._source.eos()]
        first = self._first_word(numbers, source_words)
        sources = self._attended(hypothesis["alignment"], source_tokens.tolist())
        symbols = []
        place = 0  # among the tokens that alignments count: all but ends of sentences
        for token in hypothesis["tokens"].tolist():
            if token in (dictionary.eos(), dictionary.pad()):
                continue
            symbol = dictionary[token]
            word = sources.get(place, -1) - first
            if token == dictionary.unk() and 0 <= word < len(source_words):
                symbol = self._table.get(source_words[word], source_words[word])
            if token not in hidden and token != dictionary.bos():
                symbols.append(symbol)
            place += 1
        return symbols

    def _first_word(self, tokens: Sequence[int], words: Sequence[str]) -> int:
        """Return where the words of the text begin among the tokens of a source; a language token may come before."""
        numbers = [self._source.index(word) for word in words]
        for first in range(len(tokens) - len(numbers) + 1):
            if tokens[first : first + len(numbers)] == numbers:
                return first
        return 0

    def _attended(self, alignment: Sequence[Any], source_tokens: Sequence[int]) -> dict[int, int]:
        """Return the number of a source token for that of a target token, neither counting ends of sentences."""
        if self.alignment == "hard":
            return {int(target): int(source) for source, target in alignment}
        columns = [column for column, token in enumerate(source_tokens) if token != self._source.eos()]
        attended = {}
        for target, row in enumerate(alignment):
            if columns:
                weights = [float(row[column]) for column in columns]
                attended[target] = weights.index(max(weights))
        return attended


def read_table(path: str) -> dict[str, str]:
    """Return the translations of a file that has a source word and its translation in each line.

    Raises:
        UserError: a line has another number of words, or is no UTF-8.
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
