"""Stock fairseq's Transformer decoded by CTranslate2: how fast the same search is in a program that only infers.

CTranslate2 reads fairseq's checkpoints. ``pip install 'fairseq-depthwise[bench]'`` brings it.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from workloads import BEAM, Batch, Side

#: Precision -> CTranslate2's name of it.
COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


def is_installed() -> bool:
    """Return whether CTranslate2 is installed."""
    return importlib.util.find_spec("ctranslate2") is not None


class CTranslate2Decoding:
    """As :class:`workloads.Decoding`: called with a batch and a beam, it translates the batch.

    Sentences are as long as there, forced in the same way; the weights are random, of the same distribution.
    """

    def __init__(self, side: Side, dictionary: Dictionary, device: str, precision: str) -> None:
        import ctranslate2

        torch.manual_seed(1)
        self.symbols = dictionary.symbols
        self.pad = dictionary.pad()
        self.eos = dictionary.eos()
        with tempfile.TemporaryDirectory() as folder:
            self.model = _converted(side, dictionary, Path(folder))
            self.translator = ctranslate2.Translator(
                str(Path(folder) / "converted"),
                device=device,
                compute_type=COMPUTE_TYPES[precision],
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )
        self.steps: list[int] = []

    def __call__(self, batch: Batch, beam: int = BEAM) -> None:
        sources = batch["net_input"]["src_tokens"]
        length = sources.size(1)
        words = [
            [self.symbols[token] for token in sentence if token not in (self.pad, self.eos)]
            for sentence in sources.tolist()
        ]
        results = self.translator.translate_batch(
            words, beam_size=beam, min_decoding_length=length, max_decoding_length=length, max_batch_size=0
        )
        # fairseq's search has one more step, which only writes the end of the sentence.
        self.steps.append(max(len(result.hypotheses[0]) for result in results) + 1)

    def unused_bytes(self) -> int:
        return 0


def _converted(side: Side, dictionary: Dictionary, folder: Path) -> Any:
    """Write stock fairseq's model, converted, into ``folder / "converted"``, and return it."""
    from ctranslate2.converters import FairseqConverter

    cfg = side.configuration("cpu")
    task = TranslationTask(cfg.task, dictionary, dictionary)
    model = task.build_model(cfg.model)
    for language in ("en", "de"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    args = cfg.model
    args.task, args.source_lang, args.target_lang = "translation", "en", "de"
    torch.save({"args": args, "model": model.state_dict()}, folder / "model.pt")
    # Read back is what was written a moment ago.
    converter = FairseqConverter(str(folder / "model.pt"), str(folder), unsafe_deserialization=True)
    converter.convert(str(folder / "converted"))
    return model
