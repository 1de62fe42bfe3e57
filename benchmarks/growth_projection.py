"""The part "projection" of ``growth.py``: the time of a training step at the paper's width and each of its depths."""

from __future__ import annotations

import argparse
import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from growth_schedules import BLOCKS
from machine import use_threads
from results_commands import tell
from side_by_side import Side, Training, alternate, corpus, dictionary_of, on_device, training_batches

#: Batches that are used by turns, short sentences to long ones.
BATCHES = 3


def measure_projection(options: argparse.Namespace, measured: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Seconds of a step at each depth and, by turns with it in the same process, at the full depth.

    Args:
        measured: what an earlier run that was stopped gave back last.
    """
    use_threads(options.threads)
    logging.getLogger("fairseq").setLevel(logging.ERROR)  # it has much to say about every model it builds
    dictionary = dictionary_of(options.vocabulary)
    dataset = corpus(dictionary, max(3003, BATCHES * options.train_tokens // 10))
    batches = on_device(training_batches(dataset, options.train_tokens, BATCHES), options.device)

    def training(layers: int) -> Callable[[int], None]:
        work = Training(side_of(options, layers), dictionary, options.device, precision_on(options.device))
        return lambda number: work(batches[number % BATCHES])

    depths = [blocks * options.base_block_size for blocks in range(1, BLOCKS + 1)]
    found: dict[str, dict[str, list[float]]] = dict(measured.get("depths", {}))
    result = {"depths": found, "tokens": [int(batch["ntokens"]) for batch in batches]}
    missing = [layers for layers in depths if str(layers) not in found]
    deepest = training(depths[-1]) if missing else None
    for layers in missing:
        assert deepest is not None

        def say(number: int, seconds: dict[str, float], layers: int = layers) -> None:
            taken = ", ".join(f"{name} {one:.3f} s" for name, one in seconds.items())
            tell(f"  {layers} layers, {'warm-up' if number < 0 else f'step {number + 1}'}: {taken}")

        # At the full depth a second model like the first shows the noise.
        works = {"depth": training(layers), "deepest": deepest}
        found[str(layers)] = alternate(
            works, rounds=options.steps, warm_up=max(1, options.steps // 3), device=options.device, say=say
        )
        works.clear()
        gc.collect()  # fairseq's trainer is full of cycles, and the next depth needs the memory
        yield result
    yield result


def side_of(options: argparse.Namespace, layers: int) -> Side:
    """The paper's model with that many encoder layers."""
    width, heads = options.base_width, options.base_heads
    sizes = [
        f"--{side}-embed-dim {width} --{side}-ffn-embed-dim {4 * width} --{side}-attention-heads {heads}"
        for side in ("encoder", "decoder")
    ]
    depths = f"--encoder-layers {layers} --decoder-layers {options.base_decoder_layers}"
    block = f"--encoder-block-size {options.base_block_size}"
    return Side("sdt_transformer", tuple(" ".join([depths, block, *sizes]).split()))


def precision_on(device: str) -> str:
    return "bf16" if device == "cuda" else "fp32"
