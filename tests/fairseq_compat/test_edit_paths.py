"""Paths of insertions and deletions, compared with the definition of the distance."""

from __future__ import annotations

import random
from functools import cache

import pytest

from fairseq_compat.edit_paths import suggested_ed2_path

NOTHING = -1


def distance(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Return the fewest insertions and deletions, by the recursive definition."""

    @cache
    def rest(row: int, column: int) -> int:
        if row == len(first) or column == len(second):
            return len(first) - row + len(second) - column
        if first[row] == second[column]:
            return rest(row + 1, column + 1)
        return 1 + min(rest(row + 1, column), rest(row, column + 1))

    return rest(0, 0)


def test_paths_lead_from_one_sequence_to_the_other_and_are_shortest() -> None:
    chance = random.Random(1)
    pairs = [
        [tuple(chance.choices(range(3), k=chance.randint(1, 7))) for _ in range(50)],
        [tuple(chance.choices(range(3), k=chance.randint(0, 7))) for _ in range(50)],
    ]
    for first, second, path in zip(*pairs, suggested_ed2_path(*pairs, NOTHING), strict=True):
        *inserted, deleted = [[symbol for symbol in symbols if symbol != NOTHING] for symbols in path]
        reached = list(inserted[0])
        for token, is_deleted, after in zip(first, deleted, inserted[1:], strict=True):
            reached += ([] if is_deleted else [token]) + after
        assert tuple(reached) == second
        assert sum(map(len, inserted)) + sum(deleted) == distance(first, second)


def test_of_equal_paths_insertions_come_last() -> None:
    # As in fairseq's extension, which goes back from the ends and looks for insertions first.
    (path,) = suggested_ed2_path([[0, 4, 5, 2]], [[0, 6, 4, 4, 2]], 1)
    assert path == [[1], [6], [1], [4], [1], [0, 0, 1, 0]]


@pytest.mark.parametrize("sequences", [[], [[]]])
def test_nothing(sequences: list[list[int]]) -> None:
    assert suggested_ed2_path(sequences, sequences, 1) == [[[1], [1]] for _ in sequences]
