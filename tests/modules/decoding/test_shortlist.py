"""A short list of target tokens: which are in it, what is searched with it, and how its table is learned."""

from __future__ import annotations

import gzip
import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_checks import assert_same_hypotheses, sentences
from tiny_models import build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.modules.decoding.graph_search import Graphs, GraphSearch, SearchLimits
from fairseq_depthwise.modules.decoding.search_graphs import EncoderGraph, StepGraph
from fairseq_depthwise.modules.decoding.shortlist import Shortlist, lexical_table


def with_shortlist(models: list[Any], table: Path, size: int) -> Graphs:
    step = StepGraph(models, in_place=True, shortlist=True).eval()
    return Graphs(EncoderGraph(models).eval(), step, Shortlist(str(table), models, size))


@pytest.fixture
def models() -> list[Any]:
    torch.manual_seed(5)
    return [build_tiny().eval(), build_tiny("mute_transformer").eval()]


@pytest.fixture
def table(models: list[Any], tmp_path: Path) -> Path:
    """Each symbol goes with itself, and less probably with the next one."""
    symbols = models[0].decoder.dictionary.symbols[4:]
    lines = [f"{one} {one} 0.75\n{two} {one} 0.25\n" for one, two in itertools.pairwise(symbols)]
    (tmp_path / "table").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "table"


def test_a_list_of_the_whole_vocabulary_changes_nothing(models: list[Any], table: Path) -> None:
    graphs = with_shortlist(models, table, 1000)
    for limits in ({}, {"prefix": (7, 5)}):
        assert_same_hypotheses(models, graphs, sentences(models[0], 5, 2, 6), beam=3, longest=20, **limits)


def test_tokens_and_their_probabilities_are_of_the_list(models: list[Any], table: Path) -> None:
    dictionary = models[0].decoder.dictionary
    source = torch.tensor([[5, 8, dictionary.eos()]])
    graphs = with_shortlist(models, table, 9)
    assert graphs.shortlist is not None
    words = graphs.shortlist(source, (len(dictionary) - 1,))[0].tolist()
    assert words == [0, 1, 2, 3, 5, 6, 8, 9, len(dictionary) - 1]
    limits = SearchLimits(2, 1.0, 6, dictionary.eos())
    (found,) = GraphSearch(graphs, eos=dictionary.eos(), vocabulary=len(dictionary))(source, limits)
    allowed = graphs.shortlist(source, ())[0]
    for hypothesis in found:
        assert set(hypothesis["tokens"].tolist()) <= set(allowed.tolist())
        previous = torch.cat([torch.tensor([dictionary.eos()]), hypothesis["tokens"][:-1]])[None]
        probabilities = torch.stack(
            [model.decoder(previous, model.encoder(source))[0][0][:, allowed].softmax(1) for model in models]
        ).mean(0)
        places = [allowed.tolist().index(token) for token in hypothesis["tokens"].tolist()]
        wanted = [float(probabilities[row, place].detach().log()) for row, place in enumerate(places)]
        assert hypothesis["positional_scores"].tolist() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    "text", ["", "{0} {1}\n", "a b c\n", "zz yy 0.5\n", "{0} {1} nan\n", "{0} {1} -0.7\n", "{0} {2} .75\n{1} {2} .75\n"]
)
def test_other_files_are_refused(models: list[Any], tmp_path: Path, text: str) -> None:
    symbols = models[0].decoder.dictionary.symbols[4:7]
    (tmp_path / "text").write_text(text.format(*symbols), encoding="utf-8")
    with pytest.raises(UserError, match="text"):
        Shortlist(str(tmp_path / "text"), models, 64)


def test_tables_are_text_files_like_all_others(models: list[Any], table: Path, tmp_path: Path) -> None:
    text = "\ufeff" + table.read_text(encoding="utf-8").replace("\n", "\r\n\r\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(text.encode()))
    packed, plain = (Shortlist(str(path), models, 9) for path in (tmp_path / "packed.gz", table))
    assert torch.equal(packed.tokens, plain.tokens)
    assert torch.equal(packed.probabilities, plain.probabilities)


def test_the_table_is_that_of_model_1() -> None:
    draw = torch.Generator().manual_seed(1)
    pairs = [
        tuple(torch.cat([torch.randint(4, 9, (length,), generator=draw), torch.tensor([2])]) for length in (4, 5))
        for _ in range(12)
    ]
    table: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(3):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in pairs:
            for token in target[:-1].tolist():
                total = sum(table[token, given] for given in set(source.tolist()))
                for given in set(source.tolist()):
                    counts[token, given] += table[token, given] / total
        sums: dict[int, float] = defaultdict(float)
        for (_, given), count in counts.items():
            sums[given] += count
        table = defaultdict(float, {(token, given): count / sums[given] for (token, given), count in counts.items()})
    found = {(token, given): probability for token, given, probability in lexical_table(pairs, rounds=3)}
    assert found == pytest.approx(dict(table))
