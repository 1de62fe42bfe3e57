"""Patches for text files: line ends, encodings, parallel texts, and the worker processes that binarize them.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.patching import patch, replaces
from fairseq_compat.text import TextFile, open_text, require_parallel
from fairseq_compat.workers import Workers


@patch("fairseq.file_chunker_utils")
def chunk_files_at_line_feeds(module: Any) -> None:
    """``fairseq-preprocess`` splits lines at carriage returns, so that all later sentence pairs are wrong.

    For text that is not UTF-8 it reports ``negative seek position -1``. Here lines end only at line feeds, even in the
    part of a file that one of ``--workers`` reads, and an error names file, line and byte.
    """

    def find_offsets(filename: str, num_chunks: int) -> list[int]:
        """Return the offsets at which parts of about equal size begin, each at a line start, and the file size."""
        require_file(filename)  # not a pipe, since it is read more than once
        offsets = [0]
        with open(filename, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A part begins at the first line start after its share of the bytes begins.
            for part in range(1, num_chunks):
                file.seek(size // num_chunks * part)
                file.readline()
                offsets.append(file.tell())
        return [*offsets, size]

    module.find_offsets = find_offsets
    module.Chunker = TextFile  # fairseq calls it with path, start and end


@patch(
    "fairseq.data.indexed_dataset",
    "fairseq.data.multilingual.multilingual_data_manager",
    "fairseq.utils",
    "fairseq_cli.preprocess",
)
def read_texts_as_utf8(module: Any) -> None:
    """``raw`` data, alignments and lists are split at carriage returns, and some are read in the locale's encoding.

    Here they are UTF-8, and their lines end only at line feeds.
    """
    # A global name of these modules, which hides the built-in function from their code alone.
    module.open = open_text


@patch("fairseq_cli.interactive", function="buffered_read")
def read_interactive_lines(original: Any, input: str, buffer_size: int) -> Iterator[list[str]]:
    """``fairseq-interactive`` splits lines at carriage returns, and reads stdin in the locale's encoding.

    Every translation after such a line then has another number than its source, and outside UTF-8 locales text is
    silently misread. Here lines are UTF-8, and end only at line feeds, with or without a carriage return before.
    """
    with TextFile(input) as file:
        lines = map(str.strip, file)
        while buffer := list(islice(lines, buffer_size)):
            yield buffer


@patch("fairseq_cli.preprocess", before="main")
def require_parallel_texts(args: Any) -> None:
    """Source and target with different numbers of lines are binarized anyway, and a training stops much later.

    Here they are refused before anything is written, and so are alignments with another number of sentences, or of
    words that a sentence does not have: a training would ignore all alignments of that sentence.
    """
    for texts in () if args.dict_only else _list_parallel_texts(args):
        # fairseq reports missing files.
        texts = [text for text in texts if os.path.isfile(text)]
        require_parallel(texts)
        if not args.only_source:
            for alignments in texts[2:]:  # after source and target
                _require_alignments(alignments, *texts[:2])


def _require_alignments(alignments: str, source: str, target: str) -> None:
    """Raise UserError unless each line has pairs of word positions, from 0, in the lines of source and target."""
    with TextFile(alignments) as pairs, TextFile(source) as sources, TextFile(target) as targets:
        for number, (line, *sentences) in enumerate(zip(pairs, sources, targets, strict=False), start=1):
            lengths = [len(sentence.split()) for sentence in sentences]
            for pair in line.split():
                # isdecimal: no sign, which int() would accept.
                positions = [int(position) for position in pair.split("-") if position.isdecimal()]
                is_pair = pair.count("-") == 1 and len(positions) == 2
                if not is_pair or positions[0] >= lengths[0] or positions[1] >= lengths[1]:
                    raise UserError(
                        f"{alignments} has {pair[:100]!r} in line {number}, of which {source} has {lengths[0]} words "
                        f"and {target} {lengths[1]}; give pairs of their positions, counted from 0, such as 0-0"
                    )


@patch("fairseq_cli.preprocess")
def write_raw_data_and_alignments(module: Any) -> None:
    """``--dataset-impl raw --only-source`` writes files that no task reads, ``train.None-None`` instead of ``train``.

    And no alignments are written for several ``--validpref`` or ``--testpref``. Here both are.
    """

    @replaces(module, "_make_dataset")
    def _make_dataset(
        original: Any, vocab: Any, input_prefix: str, output_prefix: str, lang: str | None, args: Any, num_workers: int
    ) -> None:
        if args.dataset_impl != "raw":
            original(vocab, input_prefix, output_prefix, lang, args, num_workers)
            return
        path = module.dataset_dest_prefix(args, output_prefix, lang)
        module.shutil.copyfile(module._file_name(input_prefix, lang), path)

    @replaces(module, "_make_all_alignments")
    def _make_all_alignments(original: Any, args: Any) -> None:
        for part, prefixes in (("train", args.trainpref), ("valid", args.validpref), ("test", args.testpref)):
            for number, prefix in enumerate(prefixes.split(",") if prefixes else ()):
                path = f"{prefix}.{args.align_suffix}"
                if os.path.isfile(path):
                    name = f"{part}{number or ''}.align"  # train.align, valid.align, valid1.align, ...
                    module._make_binary_alignment_dataset(path, name, num_workers=args.workers, args=args)


def _list_parallel_texts(args: Any) -> Iterator[list[str]]:
    """Yield the texts of each subset, such as train.en, train.de and train.align."""
    # Without a language, the file name is just the prefix.
    endings = [f".{args.source_lang}" if args.source_lang else ""]
    if not args.only_source:
        endings.append(f".{args.target_lang}" if args.target_lang else "")
    prefixes = [args.trainpref] if args.trainpref else []
    for several in filter(None, (args.validpref, args.testpref)):
        prefixes += several.split(",")
    for prefix in prefixes:
        # Source, target and alignments, in this order.
        texts = [f"{prefix}{ending}" for ending in endings]
        if args.align_suffix:
            texts.append(f"{prefix}.{args.align_suffix}")
        if args.alignfile and prefix == args.trainpref:
            texts.append(args.alignfile)
        yield texts


@patch("fairseq.data.language_pair_dataset", before="LanguagePairDataset.__init__")
def require_parallel_data(src: Any, tgt: Any, align_dataset: Any) -> None:
    """Source and target that were binarized separately, with different numbers of sentences, fail an assertion.

    ``--load-alignments`` with data in several parts ends in an ``IndexError``, or gives sentences the alignments of
    others. Here an error says what differs.
    """
    if align_dataset is not None and len(align_dataset) != len(src):
        raise UserError(
            f"--load-alignments: the data have {len(src):,} sentences, but {len(align_dataset):,} with alignments; "
            "combine train, train1 and so on into one, without --upsample-primary"
        )
    if tgt is not None and len(src) != len(tgt):
        raise UserError(
            f"the data have {len(src):,} sentences in the source and {len(tgt):,} in the target; run "
            "fairseq-preprocess again, with texts of the same number of lines"
        )


@patch("fairseq.binarizer", "fairseq.data.dictionary")
def detect_lost_workers(module: Any) -> None:
    """``fairseq-preprocess --workers N`` waits forever for a worker that was killed, such as for lack of memory.

    On Ctrl-C each worker prints a page of traceback, because a terminal interrupts all processes of a command. Here a
    lost worker is an error, and only the main process handles Ctrl-C and ends the others.
    """
    # concurrent.futures notices a lost process; multiprocessing.Pool starts another one, and waits for the lost result.
    module.Pool = Workers
