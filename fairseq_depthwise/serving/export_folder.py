"""``fairseq-depthwise export``: a folder with all that translating takes, for programs that know nothing of fairseq."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from torch.export import ExportedProgram

from fairseq_compat import UserError
from fairseq_compat.files import copied_whole, raising_later, written_whole
from fairseq_compat.outputs import folder_written_whole, output_folder
from fairseq_compat.versions import recorded_versions
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files, data_folder
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.directions import first_task, languages_of
from fairseq_depthwise.serving.exported_model import StateShape, export_programs, refuse_architecture
from fairseq_depthwise.serving.text_codec import TextOptions, settings_for

#: The version of the folder's layout, under ``format`` in its configuration.
FORMAT = 1

#: What the folder's marker says it is.
KIND = "export"

#: The file that says what is in the folder.
CONFIG = "config.json"

#: A recorded file of subwords, by the option that names it, and what it is called in the folder.
_SUBWORDS = {"bpe_codes": "bpe.codes", "sentencepiece_model": "sentencepiece.model"}

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ExportOptions:
    """What is exported, and how.

    Attributes:
        data: the folder with the dictionaries; None for the one that the training recorded.
        source_lang: None for the training's.
        target_lang: None for the training's.
        dtype: of the parameters and of what is computed, "float32" or "bfloat16".
        force: replace an export that is there.
    """

    data: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    dtype: str = "float32"
    force: bool = False


def export(
    checkpoint: str, folder: str, options: ExportOptions, say: Callable[[str], None] = lambda sentence: None
) -> dict[str, Any]:
    """Export the model of a checkpoint and return the folder's configuration.

    Args:
        checkpoint: the file, or a folder with a ``checkpoint_best.pt``.
        folder: to make.
        options: how.
        say: is told what is left out.

    Raises:
        UserError: the folder exists or cannot be written, the data are missing, or the model cannot be exported.
    """
    place = output_folder("OUT", folder, KIND, force=options.force)
    files = checkpoint_files(checkpoint)
    if len(files) > 1:
        raise UserError(f"{checkpoint} are {len(files)} checkpoints; export them one by one")
    trained = Checkpoint(files[0])
    trained.require_family()
    refuse_architecture(trained.path, trained.architecture)
    if getattr(trained.cfg.model, "quant_noise_scalar", 0):
        raise UserError(
            f"{trained.path} was trained with --quant-noise-scalar, whose rounding of weights and activations is "
            "counted in Python while the model runs, so it cannot be exported"
        )
    if options.data is not None and not os.path.isdir(options.data):
        raise UserError(f"--data {options.data} is not a folder; give one that fairseq-preprocess made")
    data = options.data or data_folder(getattr(trained.cfg.task, "data", None), trained.path)
    task = first_task(trained, data, options.source_lang, options.target_lang)
    model = cast(StackModel, trained.model(task, data).to(_DTYPES[options.dtype]))
    programs = export_programs(model, trained.path)
    text, subwords = _text(trained, task, data, say)
    config = {
        "format": FORMAT,
        "architecture": trained.architecture,
        "versions": recorded_versions(),
        "dtype": options.dtype,
        **_language(task, model),
        "text": text,
        **_shapes(model),
    }
    with folder_written_whole(place, KIND, replace=options.force) as aside:
        for name, program in (("encoder", programs.encoder), ("decoder_step", programs.decoder_step)):
            _save(program, os.path.join(aside, config["functions"][name]["file"]))
        for side, dictionary in (("src", task.source_dictionary), ("tgt", task.target_dictionary)):
            dictionary.save(os.path.join(aside, f"dict.{side}.txt"))
        for source, name in subwords.items():
            copied_whole(source, os.path.join(aside, name))
        with written_whole(os.path.join(aside, CONFIG)) as file:
            file.write(json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n")
    return config


def _save(program: ExportedProgram, path: str) -> None:
    with written_whole(path) as file, raising_later(file) as carried_on:
        torch.export.save(program, carried_on)


# --- what the configuration says -------------------------------------------------------------------------------------


def _language(task: FairseqTask, model: StackModel) -> dict[str, Any]:
    """Languages, vocabularies, the tokens around a sentence, and how translations are searched by default."""
    source: Dictionary = task.source_dictionary
    target: Dictionary = task.target_dictionary
    source_lang, target_lang = languages_of(task)
    # What the task puts around a sentence of one word.
    word = torch.tensor([source.unk(), source.eos()])
    dataset: Any = task.build_dataset_for_inference([word], [2])
    around: list[int] = dataset.collater([dataset[0]])["net_input"]["src_tokens"][0].tolist()
    place = around.index(source.unk())
    start, prefix = _target_start(task)
    search = BeamOptions()
    return {
        "languages": {"source": source_lang, "target": target_lang},
        "vocabulary": {"source": len(source), "target": len(target)},
        "symbols": {"<s>": target.bos(), "<pad>": target.pad(), "</s>": target.eos(), "<unk>": target.unk()},
        "source": {"prefix": around[:place], "suffix": around[place + 1 :], "longest": model.encoder.max_positions()},
        "target": {"start": start, "prefix": prefix, "longest": model.decoder.max_positions()},
        "search": {
            "beam": search.beam,
            "length_penalty": search.length_penalty,
            "max_length": min(search.max_length, model.decoder.max_positions() - 1),
        },
    }


def _target_start(task: FairseqTask) -> tuple[int, list[int]]:
    """The decoder's first token, and those that every translation begins with: what ``inference_step`` of fairseq does.

    fairseq's task of many languages says there which language is wanted.
    """
    end: int = task.target_dictionary.eos()
    if not isinstance(task, TranslationMultiSimpleEpochTask):
        return end, []
    _, named = task.args.langtoks["main"]
    if not named:
        return end, []
    token: int = task.data_manager.get_decoder_langtok(task.args.target_lang, named)
    return (token, []) if task.args.lang_tok_replacing_bos_eos else (end, [token])


def _text(
    checkpoint: Checkpoint, task: FairseqTask, data: str, say: Callable[[str], None]
) -> tuple[Mapping[str, Any] | None, dict[str, str]]:
    """How text becomes tokens, None where that is not known; and the files it takes, with their names in the folder."""
    try:
        settings = settings_for(TextOptions(), checkpoint.cfg, task.source_dictionary, path=checkpoint.path, data=data)
    except UserError as error:
        say(f"how text becomes tokens is left out: {error}")
        return None, {}
    text = {"tokenizer": None, "bpe": None, **settings.tokenizer, **settings.bpe}
    files = {}
    for option, name in _SUBWORDS.items():
        if settings.bpe.get(option):
            files[text[option]] = text[option] = name
    return text, files


def _shapes(model: StackModel) -> dict[str, Any]:
    """Files and the tensors that go in and out, in order; sizes with a name may be any."""
    shape = StateShape.of(model)
    vocabulary = len(model.decoder.dictionary)
    dtype = _name(model.encoder.embedding.tokens.weight.dtype)

    def state(name: str, rows: str, length: str) -> dict[str, Any]:
        return _tensor(name, dtype, shape.layers, rows, shape.heads, length, shape.head_dim)

    return {
        "functions": {
            "encoder": {
                "file": "encoder.pt2",
                "inputs": [_tensor("source_tokens", "int64", "batch", "source")],
                "outputs": [
                    state("cross_keys", "batch", "source"),
                    state("cross_values", "batch", "source"),
                    _tensor("source_padding", "bool", "batch", "source"),
                ],
            },
            "decoder_step": {
                "file": "decoder_step.pt2",
                "inputs": [
                    _tensor("tokens", "int64", "rows"),
                    state("own_keys", "rows", "past"),
                    state("own_values", "rows", "past"),
                    state("cross_keys", "rows", "source"),
                    state("cross_values", "rows", "source"),
                    _tensor("source_padding", "bool", "rows", "source"),
                ],
                "outputs": [
                    _tensor("log_probs", _probability_dtype(model), "rows", vocabulary),
                    state("own_keys", "rows", "past + 1"),
                    state("own_values", "rows", "past + 1"),
                ],
            },
        }
    }


def _probability_dtype(model: StackModel) -> str:
    """fairseq computes probabilities in float32, but an adaptive softmax's in the type of the parameters."""
    adaptive = model.decoder.adaptive_softmax is not None
    return _name(model.encoder.embedding.tokens.weight.dtype) if adaptive else "float32"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tensor(name: str, dtype: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}
