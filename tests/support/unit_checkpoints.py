"""A tiny multi-unit model, its checkpoint and data for it, for the tests of what looks at units."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.models import FairseqEncoderDecoderModel
from tiny_models import dictionary_of, task_of

from fairseq_depthwise.models.mute.model import MuteTransformer

MUTE: dict[str, Any] = {
    "encoder_embed_dim": 16,
    "decoder_embed_dim": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_embed_dim": 24,
    "decoder_ffn_embed_dim": 24,
    "encoder_units": 4,
    "max_relative_positions": 2,
}

#: Source sentences of 2 to 6 words, of a dictionary of 8; one of each length is unlike the others.
SENTENCES = [
    "w0 w1 w2", "w3 w4", "w5 w6 w7 w0 w1 w2", "w7 w1", "w2 w2 w2 w3 w4", "w6 w5 w4", "w0 w7 w3 w1",
]  # fmt: skip

#: fairseq's four special entries, and w0 to w7.
ENTRIES = 12


def unit_model(**options: Any) -> FairseqEncoderDecoderModel:
    """A seeded model in evaluation mode, whose weights and biases differ from unit to unit."""
    torch.manual_seed(3)
    model = MuteTransformer.build_model(SimpleNamespace(**(MUTE | options)), task_of(ENTRIES, ENTRIES))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "order" in name:
                parameter.uniform_(0, 1)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def unit_checkpoint(folder: Path, name: str = "mute.pt", **options: Any) -> str:
    """A checkpoint of :func:`unit_model`, from a training whose data folder is gone."""
    cfg = {
        "model": {"_name": "mute_transformer", **MUTE, **options},
        "task": {
            "_name": "translation", "data": "gone", "source_lang": "src", "target_lang": "tgt",
            "train_subset": "train", "dataset_impl": None, "required_seq_len_multiple": 1,
        },
    }  # fmt: skip
    state = {
        "args": None,
        "cfg": cfg,
        "model": unit_model(**options).state_dict(),
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
    }
    torch.save(state, folder / name)
    return str(folder / name)


def unit_data(folder: Path, entries: int = ENTRIES, **subsets: list[str]) -> str:
    """What ``fairseq-preprocess`` makes: a folder with a part ``valid``, and others; the target is the source."""
    folder.mkdir()
    dictionary = dictionary_of(entries)
    binarizer = VocabularyDatasetBinarizer(dictionary, append_eos=True)
    for language in ("src", "tgt"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        for subset, sentences in {"valid": SENTENCES, **subsets}.items():
            text = folder / f"{subset}.{language}"
            text.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
            FileBinarizer.multiprocess_dataset(
                str(text), "mmap", binarizer, str(folder / f"{subset}.src-tgt.{language}"), vocab_size=entries,
                num_workers=1,
            )  # fmt: skip
            text.unlink()
    return str(folder)
