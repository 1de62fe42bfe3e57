"""What the benchmark ``bench.py`` measures: its rows, their sizes, and the cases that each is measured in.

A row is a model. It is compared with stock fairseq's Transformer of as many layers, the row that ``beside`` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TRAINING, DECODING = "training", "decoding"

#: Families; those of stock fairseq are what the others are compared with.
STOCK, STOCK_PRE_NORM, DEPTHWISE, MUTE, SDT = "stock", "stock pre-norm", "depth-wise", "mute", "sdt"

#: The row that is no model of fairseq's: stock's weights in another program, which decodes only.
CTRANSLATE2 = "ctranslate2"


@dataclass(frozen=True)
class Size:
    """Widths of all models of a run.

    Args:
        width: of embeddings and layers, d.
        hidden: of feed-forward nets, and of the depth-wise cell's hidden net.
        heads: of every attention.
        vocabulary: entries of the joined dictionary.
    """

    width: int
    hidden: int
    heads: int
    vocabulary: int

    def options(self) -> tuple[str, ...]:
        """fairseq's options that all models understand."""
        values = {"embed-dim": self.width, "attention-heads": self.heads}
        return tuple(
            word
            for side in ("encoder", "decoder")
            for name, value in values.items()
            for word in (f"--{side}-{name}", str(value))
        )

    def hidden_options(self, family: str) -> tuple[str, ...]:
        if family == DEPTHWISE:
            return ("--depthwise-hidden-dim", str(self.hidden))
        return ("--encoder-ffn-embed-dim", str(self.hidden), "--decoder-ffn-embed-dim", str(self.hidden))


SIZES = {
    "tiny": Size(width=16, hidden=32, heads=2, vocabulary=64),
    "narrow": Size(width=128, hidden=512, heads=4, vocabulary=8000),
    "base": Size(width=512, hidden=2048, heads=8, vocabulary=32768),
}

#: Without these, families have dropouts of their own, and rows would not do the same work.
SAME_DROPOUT = ("--attention-dropout", "0", "--activation-dropout", "0")

_PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")

#: fairseq's loss, computed from scores without log-probabilities of the whole vocabulary; stock has fairseq's own.
_OUR_LOSS = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary")

_ARCHITECTURES = {
    STOCK: "transformer",
    STOCK_PRE_NORM: "transformer",
    DEPTHWISE: "depthwise_lstm_transformer",
    MUTE: "mute_transformer",
    SDT: "sdt_transformer",
    CTRANSLATE2: "transformer",
}


@dataclass(frozen=True)
class Row:
    """A model that is measured.

    Args:
        name: in the tables.
        family: one of the names above.
        layers: of the encoder.
        extra: fairseq's options that make the difference to other rows of the family.
        decoder_layers: of the decoder.
        by_length: measured on sentences of several lengths as well.
    """

    name: str
    family: str
    layers: int = 6
    extra: tuple[str, ...] = ()
    decoder_layers: int = 6
    by_length: bool = False

    @property
    def is_stock(self) -> bool:
        return self.family in (STOCK, STOCK_PRE_NORM)

    @property
    def is_ours(self) -> bool:
        return self.family in (DEPTHWISE, MUTE, SDT)

    @property
    def beside(self) -> str:
        """The row of stock fairseq that this one is compared with."""
        return f"stock {self.layers}" + (" pre-norm" if self.family in (STOCK_PRE_NORM, MUTE, SDT) else "")

    @property
    def parts(self) -> tuple[str, ...]:
        return (DECODING,) if self.family == CTRANSLATE2 else (TRAINING, DECODING)

    @property
    def arch(self) -> str:
        return _ARCHITECTURES[self.family]

    def options(self, size: Size) -> tuple[str, ...]:
        """fairseq's options of the model."""
        depth = ("--encoder-layers", str(self.layers), "--decoder-layers", str(self.decoder_layers))
        norm = _PRE_NORM if self.family == STOCK_PRE_NORM else ()
        loss = _OUR_LOSS if self.is_ours else ()
        return (
            *depth,
            *size.options(),
            *size.hidden_options(self.family),
            *SAME_DROPOUT,
            *norm,
            *loss,
            *self.extra,
        )


def _rows() -> Iterator[Row]:
    yield Row("stock 6", STOCK, by_length=True)
    yield Row("depth-wise", DEPTHWISE, by_length=True)
    yield Row("depth-wise, 1-layer", DEPTHWISE, extra=("--depthwise-hidden-layers", "1"))
    yield Row("depth-wise, two-cells", DEPTHWISE, extra=("--decoder-merge", "two-cells"))
    yield Row(CTRANSLATE2, CTRANSLATE2)
    yield Row("stock 6 pre-norm", STOCK_PRE_NORM, by_length=True)
    for units in (1, 2, 4, 6):
        yield Row(f"mute {units}", MUTE, extra=("--encoder-units", str(units)), by_length=units == 4)
    yield Row("sdt 6", SDT)
    for layers in (12, 24, 48):
        yield Row(f"stock {layers} pre-norm", STOCK_PRE_NORM, layers)
        yield Row(f"sdt {layers}", SDT, layers)
        no_blocks, absolute = ("--encoder-block-size", "0"), ("--max-relative-positions", "0")
        yield Row(f"sdt {layers}, no blocks", SDT, layers, no_blocks)
        yield Row(f"sdt {layers}, no relative positions", SDT, layers, absolute)
        yield Row(f"sdt {layers}, neither", SDT, layers, (*no_blocks, *absolute))


#: Name -> row, in the order of the tables.
ROWS = {row.name: row for row in _rows()}

#: A choice of rows that takes minutes.
QUICK = (
    "stock 6", "depth-wise", CTRANSLATE2, "stock 6 pre-norm", "mute 1", "mute 4", "sdt 6",
    "stock 12 pre-norm", "sdt 12", "stock 24 pre-norm", "sdt 24", "stock 48 pre-norm", "sdt 48",
)  # fmt: skip


def groups(rows: Sequence[Row], together: int) -> list[list[Row]]:
    """Rows that take turns: first the one of stock fairseq, then at most ``together`` - 1 that are compared with it.

    A row of stock fairseq is added where it was not asked for: without it there would be nothing to compare with.
    """
    beside: dict[str, list[Row]] = {}
    for row in rows:
        members = beside.setdefault(row.beside, [])
        if not row.is_stock:
            members.append(row)
    step = max(1, together - 1)
    return [
        [ROWS[stock], *members[begin : begin + step]]
        for stock, members in beside.items()
        for begin in range(0, max(1, len(members)), step)
    ]


@dataclass(frozen=True)
class Case:
    """What a row does in its turns.

    Args:
        part: training or decoding.
        beam: of decoding.
        sentences: decoded at once.
        length: all sentences have as many tokens; 0: lengths are like those of newstest.
    """

    part: str
    beam: int = 0
    sentences: int = 0
    length: int = 0

    def as_numbers(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        words = [self.part]
        words += [f"beam {self.beam}, {self.sentences} at once"] if self.beam else []
        words += [f"length {self.length}"] if self.length else []
        return ", ".join(words)


#: Beam 4 first: it is what the papers decode with.
BEAMS = (4, 1)


def cases(part: str, row: Row, *, sentences: Sequence[int], lengths: Sequence[int]) -> list[Case]:
    """The cases of a row.

    Args:
        part: training or decoding.
        row: the row.
        sentences: decoded at once; sentences of given lengths are decoded in batches of the last of these.
        lengths: tokens of sentences.
    """
    lengths = lengths if row.by_length else ()
    if part == TRAINING:
        return [Case(part), *(Case(part, length=length) for length in lengths)]
    found = [Case(part, beam=beam, sentences=number) for beam in BEAMS for number in sentences]
    return [*found, *(Case(part, beam=BEAMS[0], sentences=sentences[-1], length=length) for length in lengths)]
