"""What ``bench.py`` measures: its rows, their sizes, and the cases that each is measured in.

A row is a model. It is compared with the row that ``beside`` names: stock fairseq's Transformer of as many layers, if
it has no other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parent.parent / folder) for folder in ("recipes/lib", "recipes")]
import small_systems  # the folder is on the path by the line above

#: Parts of a run; the encoder alone is a case of decoding.
TRAINING, DECODING, ENCODING = "training", "decoding", "encoding"

#: Families; those of stock fairseq are what the others are compared with.
STOCK, STOCK_PRE_NORM, DEPTHWISE, MUTE, SDT = "stock", "stock pre-norm", "depth-wise", "mute", "sdt"

#: The row that is no model of fairseq's: stock's weights in another program, which decodes only.
CTRANSLATE2 = "ctranslate2"


#: The size of the protocol in docs/results.md.
_MULTI30K = small_systems.MULTI30K


@dataclass(frozen=True)
class Size:
    """Widths of all models of a run: of layers, of hidden nets; heads; entries of the joined dictionary."""

    width: int
    hidden: int
    heads: int
    vocabulary: int

    def options(self, family: str) -> tuple[str, ...]:
        """Return fairseq's options of these widths."""
        values = {"embed-dim": self.width, "attention-heads": self.heads}
        if family != DEPTHWISE:
            values["ffn-embed-dim"] = self.hidden
        words = [f"--{side}-{name}={value}" for side in ("encoder", "decoder") for name, value in values.items()]
        return (*words, *([f"--depthwise-hidden-dim={self.hidden}"] if family == DEPTHWISE else []))


SIZES = {
    "tiny": Size(width=16, hidden=32, heads=2, vocabulary=64),
    "small": Size(width=_MULTI30K.width, hidden=_MULTI30K.inner, heads=_MULTI30K.heads, vocabulary=6056),
    "narrow": Size(width=128, hidden=512, heads=4, vocabulary=8000),
    "middle": Size(width=256, hidden=1024, heads=4, vocabulary=8000),
    "base": Size(width=512, hidden=2048, heads=8, vocabulary=32768),
}

#: Without these, families have dropouts of their own, and rows would not do the same work.
SAME_DROPOUT = ("--attention-dropout", "0", "--activation-dropout", "0")

_PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")

#: fairseq's loss, computed from scores without log-probabilities of the whole vocabulary; stock has fairseq's own.
_OUR_LOSS = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary")

#: Noise in every layer of every step; without the penalty, which stock's loss has not.
_SEQUENTIAL = (
    "--encoder-units", "4", "--unit-sequential", "--unit-inputs", "identity,swap,mask,disorder",
    "--unit-noise-rate", "1", "--permutation-penalty", "0",
)  # fmt: skip

#: What saves memory in training; each on top of those before.
_MEMORY_MEASURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("fp32", "fp32", ()),
    ("bf16", "bf16", ()),
    ("recomputed", "bf16", ("--checkpoint-activations",)),
    ("fused", "bf16", ("--optimizer", "fused_adam")),
)

#: What the rows of connections over depth are compared with.
PLAIN = "12 layers, residual"

#: What the systems of the small recipes, each a row of its name, are compared with.
PROTOCOL_BASE = "transformer"

#: Row -> its connection on both sides, and further options.
_CONNECTIONS = {
    PLAIN: ("residual",),
    "12 layers, average": ("average",),
    "12 layers, attention": ("attention",),
    "12 layers, attention by 3": ("attention", "--encoder-block-size", "3"),
    "12 layers, hyper": ("hyper",),
    "12 layers, hyper on a manifold": ("hyper", "--hyper-manifold"),
    "12 layers, value-residual": ("value-residual",),
    "12 layers, scaled norms": ("residual", "--norm-scaling"),
}

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
        loop: its units are computed one after the other, see ``unit_loop.py``.
        precision: its own; else it is the run's.
        preset: an architecture with its own widths; else it has the run's.
        compared: the row that it is compared with, where that is not stock fairseq's.
        parts: what it is measured in.
    """

    name: str
    family: str
    layers: int = 6
    extra: tuple[str, ...] = ()
    decoder_layers: int = 6
    by_length: bool = False
    loop: bool = False
    precision: str = ""
    preset: str = ""
    compared: str = ""
    parts: tuple[str, ...] = (TRAINING, DECODING)

    @property
    def is_ours(self) -> bool:
        return self.family in (DEPTHWISE, MUTE, SDT)

    @property
    def beside(self) -> str:
        """The row that this row is compared with: stock fairseq's, the preset's in float32, or the one it names."""
        if self.compared:
            return self.compared
        if self.preset:
            return f"{self.name.split(',')[0]}, fp32"
        return f"stock {self.layers}" + (" pre-norm" if self.family in (STOCK_PRE_NORM, MUTE, SDT) else "")

    @property
    def arch(self) -> str:
        return self.preset or _ARCHITECTURES[self.family] + ("_loop" if self.loop else "")

    def options(self, size: Size) -> tuple[str, ...]:
        """Return fairseq's options of the model."""
        if self.preset:
            return self.extra
        depth = ("--encoder-layers", str(self.layers), "--decoder-layers", str(self.decoder_layers))
        norm = _PRE_NORM if self.family == STOCK_PRE_NORM else ()
        loss = _OUR_LOSS if self.is_ours else ()
        return (*depth, *size.options(self.family), *SAME_DROPOUT, *norm, *loss, *self.extra)


def _rows() -> Iterator[Row]:
    yield Row("stock 6", STOCK, by_length=True)
    yield Row("depth-wise", DEPTHWISE, by_length=True)
    yield Row("depth-wise, 1-layer", DEPTHWISE, extra=("--depthwise-hidden-layers", "1"))
    yield Row("depth-wise, two-cells", DEPTHWISE, extra=("--decoder-merge", "two-cells"))
    for kernel in ("compile", "triton"):
        yield Row(f"depth-wise, {kernel}", DEPTHWISE, extra=("--depthwise-kernel", kernel))
    yield Row(CTRANSLATE2, CTRANSLATE2, parts=(DECODING,))
    yield Row(f"{CTRANSLATE2}, int8", CTRANSLATE2, precision="int8", parts=(DECODING,))
    yield Row("stock 6 pre-norm", STOCK_PRE_NORM, by_length=True)
    for units in (1, 2, 4, 6):
        number = ("--encoder-units", str(units))
        yield Row(f"mute {units}", MUTE, extra=number, by_length=units == 4)
        if units > 1:
            yield Row(f"mute {units}, loop", MUTE, extra=number, loop=True)
    for loop in ("", ", loop"):  # every unit has inputs of its own: another path through the code
        yield Row(f"mute 4, sequential{loop}", MUTE, extra=_SEQUENTIAL, loop=bool(loop))
    yield Row("sdt 6", SDT)
    for precision in ("bf16", "compiled", "onnx", "int8"):
        for name, family, extra in (
            ("depth-wise", DEPTHWISE, ()), ("mute 4", MUTE, ("--encoder-units", "4")), ("sdt 6", SDT, ()),
        ):  # fmt: skip
            yield Row(f"{name}, {precision}", family, extra=extra, precision=precision, parts=(DECODING,))
    for layers in (12, 24, 48):
        yield Row(f"stock {layers} pre-norm", STOCK_PRE_NORM, layers)
        yield Row(f"sdt {layers}", SDT, layers)
        no_blocks, absolute = ("--encoder-block-size", "0"), ("--max-relative-positions", "0")
        yield Row(f"sdt {layers}, no blocks", SDT, layers, no_blocks)
        yield Row(f"sdt {layers}, no relative positions", SDT, layers, absolute)
        yield Row(f"sdt {layers}, neither", SDT, layers, (*no_blocks, *absolute))
    for name, words in _CONNECTIONS.items():
        both = [f"--{side}-connection={words[0]}" for side in ("encoder", "decoder")]
        extra = ("--encoder-block-size", "0", *both, *words[1:])
        yield Row(name, SDT, 12, extra, compared=PLAIN)
    for name, family, preset in (
        ("base", SDT, "sdt_transformer"),
        ("48 layers", SDT, "sdt_transformer_wmt_en_de_48l"),
        ("big", DEPTHWISE, "depthwise_lstm_transformer_wmt_en_de_big"),
    ):
        extra = ()
        for measure, precision, further in _MEMORY_MEASURES:
            extra = (*extra, *further)
            yield Row(f"{name}, {measure}", family, preset=preset, precision=precision, extra=extra, parts=(TRAINING,))
    for name, system in small_systems.systems(_MULTI30K).items():
        family = next(known for known in (DEPTHWISE, MUTE, SDT, STOCK) if system.arch.startswith(_ARCHITECTURES[known]))
        deep = bool(system.stages) or str(_MULTI30K.deep) in system.options
        layers = _MULTI30K.deep if deep else _MULTI30K.layers
        extra = (*system.options, "--encoder-layers", str(layers))
        yield Row(name, family, layers, extra, preset=system.arch, compared=PROTOCOL_BASE, parts=(DECODING,))


#: Name -> row, in the order of the tables.
ROWS = {row.name: row for row in _rows()}

#: A choice of rows that takes minutes.
QUICK = (
    "stock 6", "depth-wise", CTRANSLATE2, "stock 6 pre-norm", "mute 1", "mute 4", "sdt 6",
    "stock 12 pre-norm", "sdt 12", "stock 24 pre-norm", "sdt 24", "stock 48 pre-norm", "sdt 48",
)  # fmt: skip

#: The families in all their forms.
FAMILIES = tuple(name for name, row in ROWS.items() if not (row.loop or row.precision or row.compared))

#: Numbers of units, each with the loop that its batched computation is compared with.
UNITS = tuple(name for name, row in ROWS.items() if row.family == MUTE and not (row.precision or row.compared))

#: Connections over depth, on both sides.
CONNECTED = tuple(_CONNECTIONS)

#: Large models, and what saves memory in training them.
LARGE = tuple(name for name, row in ROWS.items() if row.preset and row.precision)

#: Systems of the small recipes, at their size.
PROTOCOL = tuple(name for name, row in ROWS.items() if row.compared == PROTOCOL_BASE)

#: Rows that decode in another precision, each with the row that it is compared with.
INT8 = (
    f"{CTRANSLATE2}, int8",
    *(name for base in ("depth-wise", "mute 4", "sdt 6") for name in (base, f"{base}, bf16", f"{base}, int8")),
)

#: Rows that decode through graphs, each with the row in eager PyTorch.
GRAPHS = (
    CTRANSLATE2,
    *(
        name
        for base in ("depth-wise", "mute 4", "sdt 6")
        for name in (base, f"{base}, compiled", f"{base}, onnx", f"{base}, int8")
    ),
)


def groups(rows: Sequence[Row], together: int) -> list[list[Row]]:
    """Return the rows that take turns: first stock fairseq's, then at most ``together`` - 1 that are compared with it.

    What others are compared with is added where it was not asked for; rows that are alone are compared with nothing.
    """
    if together == 1:
        return [[row] for row in rows]
    beside: dict[str, list[Row]] = {}
    for row in rows:
        members = beside.setdefault(row.beside, [])
        if row.name != row.beside:
            members.append(row)
    step = together - 1
    return [
        [ROWS[stock], *members[begin : begin + step]]
        for stock, members in beside.items()
        for begin in range(0, max(1, len(members)), step)
    ]


@dataclass(frozen=True)
class Case:
    """What a row does in its turns.

    Args:
        part: training, decoding or encoding.
        beam: of decoding.
        sentences: decoded at once.
        length: all sentences have as many tokens; 0: lengths are like those of newstest.
    """

    part: str
    beam: int = 0
    sentences: int = 0
    length: int = 0

    def __str__(self) -> str:
        words = [self.part]
        words += [f"beam {self.beam}"] if self.beam else []
        words += [f"{self.sentences} at once"] if self.sentences else []
        words += [f"length {self.length}"] if self.length else []
        return ", ".join(words)


#: Beam 4 first: it is what the papers decode with.
BEAMS = (4, 1)


def cases(part: str, row: Row, *, sentences: Sequence[int], lengths: Sequence[int]) -> list[Case]:
    """Return the cases of a row.

    Args:
        part: training or decoding.
        row: the row.
        sentences: decoded at once; sentences of given lengths are decoded in batches of the last of these.
        lengths: tokens of sentences.
    """
    lengths = lengths if row.by_length else ()
    if part == TRAINING:
        return [Case(part), *(Case(part, length=length) for length in lengths)]
    at_once = [Case(part, beam=beam, sentences=number) for beam in BEAMS for number in sentences]
    if row.family != CTRANSLATE2:
        at_once += [Case(ENCODING, sentences=number) for number in sentences]
    return [*at_once, *(Case(part, beam=BEAMS[0], sentences=sentences[-1], length=length) for length in lengths)]
