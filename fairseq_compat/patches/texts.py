"""Patches of texts: where lines end, which bytes are text, and which texts belong line by line together."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import islice
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.patching import patch
from fairseq_compat.text import TextFile, open_text, require_parallel


@patch("fairseq.file_chunker_utils")
def lines_of_parts(module: Any) -> None:
    """``fairseq-preprocess`` ends lines at carriage returns within them, and all later pairs of sentences are wrong.

    Of text that is not UTF-8 it says ``negative seek position -1``. Here lines end at line feeds only, in a file as in
    each part of it that one of ``--workers`` reads, and an error names file, line and byte.
    """

    def find_offsets(filename: str, num_chunks: int) -> list[int]:
        """Return the places at which parts of about equal size begin, each with a line, and the end of the file."""
        require_file(filename)  # it is read more than once
        offsets = [0]
        with open(filename, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for part in range(1, num_chunks):
                file.seek(size // num_chunks * part)
                file.readline()
                offsets.append(file.tell())
        return [*offsets, size]

    module.find_offsets = find_offsets
    module.Chunker = TextFile


@patch(
    "fairseq.data.indexed_dataset", "fairseq.data.multilingual.multilingual_data_manager", "fairseq.utils",
    "fairseq_cli.preprocess",
)  # fmt: skip
def lines_of_texts(module: Any) -> None:
    """Data of the kind ``raw``, alignments and lists end lines at carriage returns, and some are in the locale's code.

    Here they are read as all other texts are.
    """
    module.open = open_text


@patch("fairseq_cli.interactive", function="buffered_read")
def interactive_lines(original: Any, input: str, buffer_size: int) -> Iterator[list[str]]:
    """``fairseq-interactive`` ends lines at carriage returns within them, and reads stdin in the locale's encoding.

    Every translation after such a line then has another number than its source, and outside of UTF-8 locales text is
    misread without a word. Lines end at line feeds only, with or without a carriage return before, and are UTF-8.
    """
    with TextFile(input) as file:
        lines = map(str.strip, file)
        while buffer := list(islice(lines, buffer_size)):
            yield buffer


@patch("fairseq_cli.preprocess", function="main")
def options_of_preprocess(original: Any, args: Any) -> None:
    """A folder that has dictionaries already, and an option without another that it needs, end in tracebacks."""
    try:
        original(args)
    except AssertionError as error:  # so are options checked
        raise UserError(str(error)) from error
    except FileExistsError as error:
        raise UserError(
            f"{error} exists already; give another --destdir, or the dictionaries to use with --srcdict and --tgtdict"
        ) from error


@patch("fairseq_cli.preprocess", function="main")
def parallel_texts(original: Any, args: Any) -> None:
    """Source and target with different numbers of lines are binarized without a word; a training stops much later.

    Here they are refused before anything is written, and so are alignments of another number of sentences.
    """
    if not args.dict_only:
        for texts in _parallel_texts(args):
            # What is missing is named by fairseq.
            require_parallel([text for text in texts if os.path.isfile(text)])
    original(args)


def _parallel_texts(args: Any) -> Iterator[list[str]]:
    """Yield the texts of each part of the data, such as train.en, train.de and train.align."""
    languages = [args.source_lang] if args.only_source else [args.source_lang, args.target_lang]
    prefixes = [args.trainpref] if args.trainpref else []
    for several in filter(None, (args.validpref, args.testpref)):
        prefixes += several.split(",")
    for prefix in prefixes:
        texts = [f"{prefix}.{language}" if language else prefix for language in languages]
        if args.align_suffix:
            texts.append(f"{prefix}.{args.align_suffix}")
        if args.alignfile and prefix == args.trainpref:
            texts.append(args.alignfile)
        yield texts


@patch("fairseq.data.language_pair_dataset", function="LanguagePairDataset.__init__")
def parallel_data(
    original: Any, self: Any, src: Any, src_sizes: Any, src_dict: Any, tgt: Any = None, *args: Any, **kwargs: Any
) -> None:
    """Source and target of different length that were binarized one by one end a training in an assertion."""
    if tgt is not None and len(src) != len(tgt):
        raise UserError(
            f"the data have {len(src):,} sentences of the source and {len(tgt):,} of the target; make them anew, of "
            "texts with the same number of lines"
        )
    original(self, src, src_sizes, src_dict, tgt, *args, **kwargs)


@patch("fairseq.binarizer", "fairseq.data.dictionary")
def interrupted_workers(module: Any) -> None:
    """On Ctrl-C each of the ``--workers`` of ``fairseq-preprocess`` prints a page of traceback.

    A terminal interrupts all processes of a command. Here the first one alone takes it, and ends the others.
    """
    pool = module.Pool

    def uninterrupted_pool(*args: Any, **kwargs: Any) -> Any:
        # Processes inherit what is blocked, from their first instruction.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return pool(*args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    module.Pool = uninterrupted_pool
