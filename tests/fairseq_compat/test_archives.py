"""Archives and data whose names are hostile: nothing is written elsewhere, and nothing reaches a shell."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fairseq_compat import UserError


def archive(path: Path, members: dict[str, str]) -> Path:
    """A ``.tar.gz`` with files, and links where the content begins with an arrow."""
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if content.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, content[2:]
            elif content == "pipe":
                member.type = tarfile.FIFOTYPE
            member.size = len(content) if member.isreg() else 0
            file.addfile(member, io.BytesIO(content.encode()) if member.isreg() else None)
    return path


@pytest.mark.parametrize(
    "members",
    [
        {"model/../../escaped": "x"}, {"../escaped": "x"}, {"{outside}/escaped": "x"}, {"model/link": "->{outside}"},
        {"model/link": "->../../outside"}, {"model/pipe": "pipe"}, {"{outside}": "->x"},
    ],
)  # fmt: skip
def test_hostile_archive_is_refused(members: dict[str, str], tmp_path: Path) -> None:
    from fairseq import file_utils

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("kept", encoding="utf-8")
    named = {name.format(outside=outside): text.format(outside=outside) for name, text in members.items()}
    path = archive(tmp_path / "model.tar.gz", named)
    with pytest.raises(UserError, match=f"{path} is refused: its member"):
        file_utils.load_archive_file(str(path))
    assert [one.name for one in outside.iterdir()] == ["mine"]
    assert path.is_file()
    assert not list(tmp_path.rglob("escaped"))


def test_archive_of_a_model_is_unpacked(tmp_path: Path) -> None:
    from fairseq import file_utils

    path = archive(tmp_path / "model.tar.gz", {"model/a.txt": "first", "model/b.txt": "->a.txt"})
    folder = Path(file_utils.load_archive_file(str(path)))
    assert (folder / "a.txt").read_text(encoding="utf-8") == (folder / "b.txt").read_text(encoding="utf-8") == "first"


def test_fasta_files_reach_no_shell(tmp_path: Path) -> None:
    from fairseq.data.fasta_dataset import FastaDataset

    folder = tmp_path / "$(touch it-ran)"
    folder.mkdir()
    (folder / "train.fasta").write_text("> one\nABC\nDE\n> two\nF\n", encoding="utf-8")
    data = FastaDataset(str(folder / "train"))
    assert len(data) == 2
    assert data[0] == ("> one", "ABCDE")
    assert data[1] == ("> two", "F")
    assert np.array_equal(data.sizes, [5, 1])
    assert not (Path.cwd() / "it-ran").exists()
