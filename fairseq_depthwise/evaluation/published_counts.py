"""Our parameter counts beside the papers'.

The papers count a bias of the classifier, one number for each word, which fairseq's tied output projection does not
have; it is added before comparing. The vocabulary is the one that the published counts imply.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

#: Joint vocabulary of the WMT14 English-German models, all three embedding tables tied.
VOCABULARY = 35_627

_SET_FOR_BOTH = "one set of gates for both stacks; the text says one for each"


class PublishedRow(NamedTuple):
    """One row of a table of "Rewiring the Transformer with Depth-Wise LSTMs".

    Attributes:
        table: number of the table.
        row: its name there.
        preset: of ``depthwise_lstm_transformer``, without that name.
        published: millions of parameters as printed.
        reading: how the row has to be read to come to that count, or why no reading does.
        consistent: False where no reading agrees with the text and the other rows.
    """

    table: int
    row: str
    preset: str
    published: str
    reading: str = ""
    consistent: bool = True


ROWS = (
    PublishedRow(2, "depth-wise RNN", "wmt_en_de_rnn", "68.67"),
    PublishedRow(2, "depth-wise LSTM", "wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    PublishedRow(3, "1-layer (Eq. 5)", "wmt_en_de_1layer", "45.05", _SET_FOR_BOTH),
    PublishedRow(3, "2-layer, 2048", "wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    PublishedRow(3, "2-layer, 1586", "wmt_en_de_hidden1536", "62.37", f"1586 is 1536; {_SET_FOR_BOTH}"),
    PublishedRow(4, "concat", "wmt_en_de_concat", "78.90"),
    PublishedRow(4, "add", "wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    PublishedRow(
        4, "2 depth-wise LSTMs", "wmt_en_de_two_cells", "100.18", "shared gates as the text has them give less", False
    ),
    PublishedRow(5, "all", "wmt_en_de_share_all", "44.00", _SET_FOR_BOTH),
    PublishedRow(5, "gate", "wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    PublishedRow(5, "none", "wmt_en_de_share_none", "87.59"),
    PublishedRow(6, "3 layers", "wmt_en_de_3l", "46.63"),
    PublishedRow(6, "6 layers", "wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    PublishedRow(6, "12 layers", "wmt_en_de_12l", "122.23"),
    PublishedRow(6, "18 layers", "wmt_en_de_18l", "172.63"),
    PublishedRow(6, "24 layers", "wmt_en_de_24l", "223.02"),
    PublishedRow(
        6,
        "Big, 12 layers",
        "wmt_en_de_big_12l",
        "452.04",
        "a vocabulary of one word more fits here and nowhere else",
        False,
    ),
    PublishedRow(6, "Big, 12-6 layers", "wmt_en_de_big_12l_6l", "338.75", "relative keys up to distance 16"),
    PublishedRow(
        6,
        "Big, 12-6 layers, 1-layer",
        "wmt_en_de_big_12l_6l_1layer",
        "288.41",
        "fits unshared gates, not the text",
        False,
    ),
)


class CountedRow(NamedTuple):
    """A published row, our count of its model, and the two compared in millions."""

    row: PublishedRow
    parameters: int
    with_bias: str
    difference: str


def count(row: PublishedRow) -> CountedRow:
    """Build the row's model without memory and count its parameters."""
    arch = f"depthwise_lstm_transformer_{row.preset}"
    options = SimpleNamespace(share_all_embeddings=True)
    ARCH_CONFIG_REGISTRY[arch](options)
    dictionary = _dictionary()
    with torch.device("meta"):
        model = ARCH_MODEL_REGISTRY[arch].build_model(
            options, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
        )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with_bias = f"{(parameters + VOCABULARY) / 1e6:.2f}"
    return CountedRow(row, parameters, with_bias, f"{float(with_bias) - float(row.published):+.2f}")


@functools.cache
def _dictionary() -> Dictionary:
    dictionary = Dictionary()
    for number in range(VOCABULARY - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    return dictionary
