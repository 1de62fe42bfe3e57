"""Systems of the recipes that anyone can run today: the families at a size that fits small corpora and CPUs.

Nothing was published for them; what they reach here is in docs/results.md. All of a recipe have the same data, batches,
updates, rate and the same three dropouts, which were chosen beforehand and tuned for none.
"""

from __future__ import annotations

from dataclasses import dataclass

from systems import PRE_NORM, SMOOTHED, TIED, Dropout, Stage, System, Training, adam, depth


@dataclass(frozen=True)
class Size:
    """What depends on the corpus.

    Attributes:
        width, inner, heads: of the model; ``inner`` is that of the feed-forward nets.
        layers: of both stacks.
        deep: of the encoder of deep models; they grow to it in thirds.
        dropout, rate, warm_up, batch_tokens, epochs: of training.
    """

    width: int
    inner: int
    heads: int
    layers: int
    deep: int
    dropout: float
    rate: float
    warm_up: int
    batch_tokens: int
    epochs: int


#: As small as is usual for Multi30k; larger models learn it by heart.
MULTI30K = Size(
    width=128, inner=256, heads=4, layers=4, deep=12, dropout=0.3, rate=3e-3, warm_up=1000, batch_tokens=4096,
    epochs=20,
)  # fmt: skip
TATOEBA = Size(
    width=192, inner=768, heads=4, layers=3, deep=9, dropout=0.1, rate=1e-3, warm_up=1000, batch_tokens=4096,
    epochs=6,
)  # fmt: skip


def systems(size: Size) -> dict[str, System]:
    """The systems of a small recipe."""
    shape = (
        *("--encoder-embed-dim", str(size.width), "--decoder-embed-dim", str(size.width)),
        *("--encoder-attention-heads", str(size.heads), "--decoder-attention-heads", str(size.heads)),
        *TIED,
    )
    inner = ("--encoder-ffn-embed-dim", str(size.inner), "--decoder-ffn-embed-dim", str(size.inner))
    same = depth(size.layers, size.layers)
    deep = ("--encoder-layers", str(size.deep), "--decoder-layers", str(size.layers))
    third = size.deep // 3
    stages = tuple(Stage(third * part, size.epochs // 4 if part < 3 else None) for part in (1, 2, 3))
    unconnected = ("--encoder-block-size", "0")
    plain, grown = _training(size), _training(size, scheduler="inverse_sqrt_restart")
    return {
        "transformer": System(
            "transformer", plain, "fairseq's Transformer, pre-norm", (*shape, *inner, *PRE_NORM, *same)
        ),
        "depthwise_lstm": System(
            "depthwise_lstm_transformer",
            plain,
            "layers connected by a depth-wise LSTM",
            (*shape, *same, "--depthwise-hidden-dim", str(size.inner)),
            baseline="transformer",
        ),
        "mute": System("mute_transformer", plain, "4 units", (*shape, *inner, *same), baseline="transformer"),
        "mute_sequential": System(
            "mute_transformer_sequential",
            plain,
            "4 units, biased inputs, learned order",
            (*shape, *inner, *same),
            baseline="transformer",
        ),
        "deep": System(
            "sdt_transformer",
            plain,
            f"encoder of {size.deep} layers from the start, relative positions",
            (*shape, *inner, *deep, *unconnected),
            baseline="transformer",
        ),
        "sdt": System(
            "sdt_transformer",
            grown,
            f"encoder grown to {size.deep} layers, relative positions",
            (*shape, *inner, "--decoder-layers", str(size.layers), "--encoder-block-size", str(third)),
            stages=stages,
            baseline="deep",
        ),
    }


def _training(size: Size, *, scheduler: str = "inverse_sqrt") -> Training:
    return Training(
        batch_tokens=size.batch_tokens,
        updates=0,
        dropout=Dropout(size.dropout, attention=0, activation=0),
        options=(
            *adam("(0.9, 0.98)", "1e-9", size.rate, size.warm_up, scheduler),
            *SMOOTHED,
            *("--max-epoch", str(size.epochs)),
        ),
        save=("--keep-last-epochs", "5"),
        average=5,
        max_tokens=size.batch_tokens,
    )
