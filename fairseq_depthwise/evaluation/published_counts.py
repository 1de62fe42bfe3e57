"""Compare our parameter counts with the published ones.

The vocabularies follow from the published counts. The papers on depth-wise LSTMs and on multi-unit Transformers count a
bias of the classifier, one number for each word, which fairseq's tied output projection does not have; it is added
before comparing. The encoders of multi-unit Transformers have their own embedding table.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from fairseq_depthwise.checkpoints.sizes import build_without_memory

#: "Rewiring the Transformer with Depth-Wise LSTMs", "Shallow-to-Deep Training for Neural Machine Translation", and
#: "Multi-Unit Transformers for Neural Machine Translation".
DEPTHWISE, SHALLOW_TO_DEEP, MULTI_UNIT = "depth-wise LSTM", "shallow-to-deep", "multi-unit"

#: Options that tie embedding tables.
ALL_TIED, DECODER_TIED = "--share-all-embeddings", "--share-decoder-input-output-embed"

#: Joint vocabulary of the WMT14 English-German models with depth-wise LSTMs; all three embedding tables are tied.
VOCABULARY = 35_627


class Interval(NamedTuple):
    """Sizes of the vocabulary for which all counts of a language pair round to the printed ones, and the one in use.

    The printed counts are those of the models without relative positions and with them.
    """

    lowest: int
    highest: int
    ours: int


#: Paper -> language pair -> vocabulary. That of shallow-to-deep models is joint and tied as well; multi-unit models are
#: assumed to have as many words on both sides. No vocabulary fits the counts of the English-German models with 6 layers
#: and with 4 units, which are ignored.
VOCABULARIES = {
    DEPTHWISE: {},
    SHALLOW_TO_DEEP: {"En-De": Interval(33_108, 33_338, 33_200), "En-Fr": Interval(44_165, 44_711, 44_400)},
    MULTI_UNIT: {
        "NIST Zh-En": Interval(49_339, 49_347, 49_343),
        "En-De": Interval(36_171, 36_423, 36_300),
        "WMT18 Zh-En": Interval(35_473, 36_423, 36_300),
    },
}

#: Ends of the names of biases that our pre-norm Transformer has and the depth-wise paper's lacks.
_BIASES = ("_projection.bias", "feed_forward.second.bias")

_SET_FOR_BOTH = "one set of gates for both stacks; the text says one for each"
_SAME_WITH_RELATIVE_POSITIONS = "without relative positions; with them, in the preset without _absolute, the same"


class PublishedRow(NamedTuple):
    """One row of a paper's table, with millions of parameters as printed.

    Some of its fields:

    - ``reading``: the interpretation of the row that gives this count, or the reason why there is none
    - ``consistent``: False if no interpretation agrees with the text and the other rows
    - ``options``: options of the model, with numbers
    - ``uncounted``: ends of the names of parameters that the paper's program does not have
    """

    paper: str
    table: int
    row: str
    arch: str
    published: str
    reading: str
    consistent: bool
    vocabulary: int
    classifier_bias: bool
    embeddings: str = ALL_TIED
    options: str = ""
    uncounted: tuple[str, ...] = ()


def _row(
    paper: str,
    prefix: str,
    table: int,
    row: str,
    preset: str,
    published: str,
    reading: str = "",
    consistent: bool = True,
    **optional: Any,
) -> PublishedRow:
    """Return a row, with the vocabulary of the language pair that its name begins with, if any."""
    # Rows of the depth-wise paper name no language pair.
    vocabulary = VOCABULARY
    for pair, interval in VOCABULARIES[paper].items():
        if row.startswith(pair):
            vocabulary = interval.ours
    return PublishedRow(
        paper,
        table,
        row,
        f"{prefix}_transformer{preset}",
        published,
        reading,
        consistent,
        vocabulary,
        classifier_bias=paper != SHALLOW_TO_DEEP,
        **optional,
    )


_depthwise = partial(_row, DEPTHWISE, "depthwise_lstm")
_shallow_to_deep = partial(_row, SHALLOW_TO_DEEP, "sdt", 1)
_multi_unit = partial(_row, MULTI_UNIT, "mute", embeddings=DECODER_TIED)


def _vanilla(table: int, row: str, layers: int, published: str) -> PublishedRow:
    """Return a row of the depth-wise paper's pre-norm Transformer, which has fewer biases than ours."""
    return _row(
        DEPTHWISE,
        "sdt",
        table,
        row,
        "_wmt_en_de_pre_norm",
        published,
        reading=_FEWER_BIASES,
        options=f"--encoder-layers {layers} --decoder-layers {layers}",
        uncounted=_BIASES,
    )


_FEWER_BIASES = (
    "without the biases of attention and of the second layer of feed-forward nets, which the authors do not have"
)
_ABSOLUTE = "--max-relative-positions 0"
_TWO_CELLS = "shared gates as the text has them give less"
_BIG_12 = "a vocabulary of one word more fits here and nowhere else"
_BIG_1_LAYER = "fits unshared gates, not the text"
_PRE_NORM = "this vocabulary gives 61.1; 63 takes 35,859 words or more"
_UNITS_GIVE_MORE = "18 more units are 56.76 M more than the row + Relative"

ROWS = (
    # Depth-wise LSTM, Table 2: the cell.
    _vanilla(2, "Transformer", 6, "62.37"),
    _depthwise(2, "depth-wise RNN", "_wmt_en_de_rnn", "68.67"),
    _depthwise(2, "depth-wise LSTM", "_wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    # Table 3: the hidden net.
    _depthwise(3, "1-layer (Eq. 5)", "_wmt_en_de_1layer", "45.05", _SET_FOR_BOTH),
    _depthwise(3, "2-layer, 2048", "_wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    _depthwise(3, "2-layer, 1586", "_wmt_en_de_hidden1536", "62.37", f"1586 is 1536; {_SET_FOR_BOTH}"),
    # Table 4: how the decoder's attentions reach the cell.
    _depthwise(4, "concat", "_wmt_en_de_concat", "78.90"),
    _depthwise(4, "add", "_wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    _depthwise(4, "2 depth-wise LSTMs", "_wmt_en_de_two_cells", "100.18", _TWO_CELLS, False),
    # Table 5: which parameters layers share.
    _depthwise(5, "all", "_wmt_en_de_share_all", "44.00", _SET_FOR_BOTH),
    _depthwise(5, "gate", "_wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    _depthwise(5, "none", "_wmt_en_de_share_none", "87.59"),
    # Table 6: depth.
    _vanilla(6, "Transformer, 3 layers", 3, "40.33"),
    _vanilla(6, "Transformer, 6 layers", 6, "62.37"),
    _vanilla(6, "Transformer, 12 layers", 12, "106.47"),
    _vanilla(6, "Transformer, 18 layers", 18, "150.57"),
    _vanilla(6, "Transformer, 24 layers", 24, "194.66"),
    _depthwise(6, "3 layers", "_wmt_en_de_3l", "46.63"),
    _depthwise(6, "6 layers", "_wmt_en_de_6l", "70.25", _SET_FOR_BOTH),
    _depthwise(6, "12 layers", "_wmt_en_de_12l", "122.23"),
    _depthwise(6, "18 layers", "_wmt_en_de_18l", "172.63"),
    _depthwise(6, "24 layers", "_wmt_en_de_24l", "223.02"),
    _depthwise(6, "Big, 12 layers", "_wmt_en_de_big_12l", "452.04", _BIG_12, False),
    _depthwise(6, "Big, 12-6 layers", "_wmt_en_de_big_12l_6l", "338.75", "relative keys up to distance 16"),
    _depthwise(6, "Big, 12-6 layers, 1-layer", "_wmt_en_de_big_12l_6l_1layer", "288.41", _BIG_1_LAYER, False),
    # Shallow-to-deep, Table 1.
    _shallow_to_deep("En-De, 6 layers", "_wmt_en_de_pre_norm", "63", _PRE_NORM, False),
    _shallow_to_deep("En-De, 24 layers", "_wmt_en_de_24l_absolute", "118", _SAME_WITH_RELATIVE_POSITIONS),
    _shallow_to_deep("En-De, 48 layers", "_wmt_en_de_48l_absolute", "194", _SAME_WITH_RELATIVE_POSITIONS),
    _shallow_to_deep("En-De, Big, 6 layers", "_wmt_en_de_big_pre_norm", "210"),
    _shallow_to_deep("En-De, Big, 24 layers", "_wmt_en_de_big_24l_absolute", "437", _SAME_WITH_RELATIVE_POSITIONS),
    _shallow_to_deep("En-Fr, 6 layers", "_wmt_en_de_pre_norm", "67"),
    _shallow_to_deep("En-Fr, 24 layers", "_wmt_en_de_24l_absolute", "124", _SAME_WITH_RELATIVE_POSITIONS),
    _shallow_to_deep("En-Fr, 48 layers", "_wmt_en_de_48l_absolute", "199", _SAME_WITH_RELATIVE_POSITIONS),
    _shallow_to_deep("En-Fr, Big, 6 layers", "_wmt_en_de_big_pre_norm", "222"),
    # Multi-unit, Table 1: NIST.
    _multi_unit(1, "NIST Zh-En, Base", "_wmt_en_de_relative", "95", options=_ABSOLUTE),
    _multi_unit(1, "NIST Zh-En, + Relative", "_wmt_en_de_relative", "95"),
    _multi_unit(1, "NIST Zh-En, Big + Relative", "_wmt_en_de_big", "277"),
    _multi_unit(1, "NIST Zh-En, MUTE, 4 units", "", "152"),
    _multi_unit(1, "NIST Zh-En, + Bias", "_biased", "152"),
    _multi_unit(1, "NIST Zh-En, + Bias + Seq.", "_sequential", "152"),
    # Table 2: WMT14.
    _multi_unit(2, "En-De, Base", "_wmt_en_de_relative", "81", options=_ABSOLUTE),
    _multi_unit(2, "En-De, + Relative", "_wmt_en_de_relative", "81"),
    _multi_unit(2, "En-De, Big + Relative", "_wmt_en_de_big", "251"),
    _multi_unit(2, "En-De, MUTE, 4 units", "", "130", _UNITS_GIVE_MORE, False),
    _multi_unit(2, "En-De, + Bias", "_biased", "130", _UNITS_GIVE_MORE, False),
    _multi_unit(2, "En-De, + Bias + Seq.", "_sequential", "130", _UNITS_GIVE_MORE, False),
    # Table 3: WMT18.
    _multi_unit(3, "WMT18 Zh-En, Base", "_wmt_en_de_relative", "81", options=_ABSOLUTE),
    _multi_unit(3, "WMT18 Zh-En, + Relative", "_wmt_en_de_relative", "81"),
    _multi_unit(3, "WMT18 Zh-En, + Bias + Seq.", "_sequential", "130", _UNITS_GIVE_MORE, False),
)


class CountedRow(NamedTuple):
    """A published row and our count of its model.

    ``compared`` is our count in millions, with as many digits as the paper prints: all ``parameters``, with the
    classifier's bias if the paper counts it, and without the row's ``uncounted`` parameters.
    """

    row: PublishedRow
    parameters: int
    compared: str
    difference: str


def count(row: PublishedRow) -> CountedRow:
    """Build the row's model without memory and count its parameters."""
    # As options of fairseq-train: "--share-all-embeddings 1 --encoder-layers 6".
    words = f"{row.embeddings} 1 {row.options}".replace("--", "").replace("-", "_").split()
    names, numbers = words[::2], words[1::2]
    options = SimpleNamespace(**dict(zip(names, map(int, numbers), strict=True)))
    # The preset's function sets what the row does not.
    ARCH_CONFIG_REGISTRY[row.arch](options)
    # For equal sizes, both sides share one dictionary.
    model = build_without_memory(ARCH_MODEL_REGISTRY[row.arch], vars(options), row.vocabulary, row.vocabulary)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}

    counted = sum(size for name, size in sizes.items() if not name.endswith(row.uncounted))
    if row.classifier_bias:
        counted += row.vocabulary
    # "62.37" has two decimals, "63" none.
    digits = len(row.published.partition(".")[2])
    compared = f"{counted / 1e6:.{digits}f}"
    difference = f"{float(compared) - float(row.published):+.{digits}f}"
    return CountedRow(row, sum(sizes.values()), compared, difference)
