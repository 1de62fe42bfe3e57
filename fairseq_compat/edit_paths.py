"""Shortest edit scripts of insertions and deletions between token sequences: fairseq's ``libnat`` in Python.

fairseq's source distribution lacks this extension. Levenshtein and insertion Transformers learn from such scripts which
tokens to delete, and what to insert where.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy


def suggested_ed2_path(
    xs: Sequence[Sequence[int]], ys: Sequence[Sequence[int]], terminal_symbol: int
) -> list[list[list[int]]]:
    """Return, for each pair of sequences, the edits that turn the first into the second.

    For a first sequence of n tokens these are n + 2 lists: the tokens to insert before each of its tokens, and after
    the last (only the terminal symbol if there are none); then, for each of its tokens, 1 if it is deleted, else 0. If
    several scripts are shortest, insertions come as late as possible, and deletions after them.
    """
    tables = _compute_distances(xs, ys)
    paths = []
    # Pairs are padded at their ends, so that a table begins with the part of its pair.
    for table, first, second in zip(tables, xs, ys, strict=True):
        inserted, deleted = _trace_path(table.tolist(), len(first), second)
        paths.append([symbols or [terminal_symbol] for symbols in (*inserted, deleted)])
    return paths


def _compute_distances(xs: Sequence[Sequence[int]], ys: Sequence[Sequence[int]]) -> numpy.ndarray:
    """Return the edit distances between all prefixes of each pair, B x (X + 1) x (Y + 1); a replacement costs 2."""
    first, second = _pad(xs, -1), _pad(ys, -2)  # padding equals no token, nor other padding
    pairs, rows = first.shape
    columns = numpy.arange(second.shape[1] + 1)
    table = numpy.zeros((pairs, rows + 1, len(columns)), numpy.int64)
    table[:, 0] = columns  # only insertions
    # Row by row, for all pairs and columns at once: a loop over cells would be slow in Python.
    for row in range(1, rows + 1):
        above = table[:, row - 1]
        best = above + 1  # deletion
        differs = first[:, row - 1, None] != second
        best[:, 1:] = numpy.minimum(best[:, 1:], above[:, :-1] + 2 * differs)  # match or replacement
        # Insertion: from the best column to the left, plus 1 per step. min over k <= j of (best[k] + j - k) is
        # min over k <= j of (best[k] - k), plus j.
        table[:, row] = numpy.minimum.accumulate(best - columns, axis=1) + columns
    return table


def _pad(sequences: Sequence[Sequence[int]], fill: int) -> numpy.ndarray:
    """Return sequences as the rows of an array, padded at their ends (B x longest)."""
    longest = max(map(len, sequences), default=0)
    array = numpy.full((len(sequences), longest), fill, numpy.int64)
    for row, sequence in enumerate(sequences):
        array[row, : len(sequence)] = sequence
    return array


def _trace_path(table: list[list[int]], length: int, second: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Return the insertions before each of ``length`` tokens and after the last, and 1 for each deleted token."""
    inserted: list[list[int]] = [[] for _ in range(length + 1)]
    deleted = [0] * length
    row, column = length, len(second)
    # From the end to the beginning. Where several steps are shortest, insertions come first here, and so last in the
    # script.
    while row or column:
        distance = table[row][column]
        if column and table[row][column - 1] < distance:
            column -= 1
            inserted[row].insert(0, second[column])
        elif row and table[row - 1][column] < distance:
            row -= 1
            deleted[row] = 1
        else:  # equal tokens: a replacement, at a cost of 2, is a deletion and an insertion
            row, column = row - 1, column - 1
    return inserted, deleted
