"""A folder that ``fairseq-depthwise export`` wrote, read again: to translate with it in the place of a checkpoint."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_compat import UserError, belonging
from fairseq_compat.plain_values import require_plain
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.export_folder import CONFIG, ENDINGS, FORMAT, SUBWORDS
from fairseq_depthwise.serving.onnx_graphs import OnnxGraphs
from fairseq_depthwise.serving.safe_program import ProgramError, load_program
from fairseq_depthwise.serving.text_codec import TextOptions, TextSettings, settings_for
from fairseq_depthwise.serving.traced_graphs import CallableGraphs


def is_exported(path: str) -> bool:
    """Return whether there is an exported folder."""
    return os.path.isfile(os.path.join(path, CONFIG)) if path else False


@dataclass(frozen=True)
class ExportedFolder:
    """What is in the folder.

    Attributes:
        path: of the folder.
        graphs: encoder and step.
        task: with its dictionaries and languages.
        prefix: tokens before those of a source sentence.
        suffix: tokens after them.
        start: the decoder's first token.
        target_prefix: what every translation begins with.
        longest: source tokens at most, and target tokens at most.
        recorded: how text becomes tokens, as a checkpoint has it.
        belongs_to: what the training recorded of dictionaries, languages and text.
    """

    path: str
    graphs: Graphs
    task: FairseqTask
    prefix: list[int]
    suffix: list[int]
    start: int
    target_prefix: tuple[int, ...]
    longest: tuple[int, int]
    recorded: dict[str, Any]
    belongs_to: belonging.Record

    def text_settings(self, options: TextOptions) -> TextSettings:
        """Return how text becomes tokens."""
        dictionary = self.task.source_dictionary
        return settings_for(
            options, self.recorded, dictionary, path=self.path, data=self.path, recorded=self.belongs_to
        )


def load_exported(path: str) -> ExportedFolder:
    """Load a folder, running no code in it.

    Raises:
        UserError: a file is missing, damaged, or not what export writes.
    """
    config = _config(path)
    try:
        files = [config["functions"][name]["file"] for name in ("encoder", "decoder_step")]
        ending = next(ending for ending in ENDINGS.values() if files == [f"encoder{ending}", f"decoder_step{ending}"])
        source, target = config["source"], config["target"]
        languages, sizes = config["languages"], config["vocabulary"]
        longest = source["longest"], target["longest"]
        for numbers, most in (
            ([*source["prefix"], *source["suffix"]], sizes["source"]),
            ([target["start"], *target["prefix"]], sizes["target"]),
            (longest, math.inf),
        ):
            if any(type(number) is not int or not 0 <= number < most for number in numbers):
                raise ValueError(f"tokens or lengths {str(numbers)[:60]}")
        if len(source["prefix"]) + len(source["suffix"]) >= longest[0] or longest[1] < 1:
            raise ValueError(f"lengths {longest}")
        options = TranslationConfig(source_lang=languages["source"], target_lang=languages["target"])
        expected = {"src": int(sizes["source"]), "tgt": int(sizes["target"])}
        recorded = _recorded(config["text"], path)
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise UserError(f"{path}/{CONFIG} is not what export writes: {error!r}") from error
    task = TranslationTask(options, *(_dictionary(path, side, size) for side, size in expected.items()))
    belongs_to = belonging.recorded_in(config)
    belonging.require_same(path, belongs_to, belonging.of_task(task), f"{path}/dict.*.txt")
    graphs: Graphs
    paths = [os.path.join(path, file) for file in files]
    if ending == ENDINGS["onnx"]:
        graphs = OnnxGraphs(*paths, threads=torch.get_num_threads())
    else:
        try:
            graphs = CallableGraphs(*(load_program(file).module() for file in paths))
        except ProgramError as error:
            raise UserError(str(error)) from error
    return ExportedFolder(
        path, graphs, task, source["prefix"], source["suffix"], target["start"], tuple(target["prefix"]), longest,
        recorded, belongs_to,
    )  # fmt: skip


def _config(path: str) -> dict[str, Any]:
    try:
        with open(os.path.join(path, CONFIG), encoding="utf-8") as file:
            config = json.load(file)
        require_plain(config)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}/{CONFIG} cannot be read: {error}") from error
    found = config.get("format") if isinstance(config, dict) else None
    if found != FORMAT:
        raise UserError(f"{path}/{CONFIG} has format {str(found)[:60]}, not {FORMAT}; export the checkpoint again")
    return dict(config)


def _dictionary(path: str, side: str, size: int) -> Dictionary:
    file = os.path.join(path, f"dict.{side}.txt")
    if os.path.islink(file) or not os.path.isfile(file):  # a pipe would wait
        raise UserError(f"{file} is missing, or is no file; give a folder that fairseq-depthwise export wrote")
    try:
        dictionary = Dictionary.load(file)
    except Exception as error:  # fairseq raises the plainest class where a line is no UTF-8
        raise UserError(f"{file} cannot be read: {error}") from error
    if len(dictionary) != size:
        raise UserError(f"{file} has {len(dictionary)} symbols, not {size}")
    return dictionary


def _recorded(text: dict[str, Any] | None, path: str) -> dict[str, Any]:
    """Return tokenizer and subwords as a checkpoint has them; their files are in the folder, under export's names."""
    if text is None:
        return {}
    for option, name in SUBWORDS.items():
        if text.get(option, name) != name:
            raise ValueError(f"{option} {text[option]!r}")
    files = {option: os.path.join(path, name) for option, name in SUBWORDS.items() if option in text}
    return {kind: {**text, **files, "_name": str(text[kind])} for kind in ("tokenizer", "bpe") if text.get(kind)}
