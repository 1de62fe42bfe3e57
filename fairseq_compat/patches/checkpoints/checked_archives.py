"""An archive that ``from_pretrained`` unpacks can write files anywhere, or move a folder of the user's away.

fairseq unpacks every member under the name that it has in the archive, ``../../.profile`` too, and then moves what the
names have in common, which can be ``/home/user``. Names that lead out of the archive's own folder are refused here,
before anything is unpacked, and so is what is neither file nor folder nor a link within.
"""

import os
import tarfile
from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import Overlay


class CheckedArchive(tarfile.TarFile):
    """An archive that is looked at when its names are asked for, which fairseq does before it unpacks it."""

    def getnames(self) -> list[str]:
        names = super().getnames()
        for member in self.getmembers():
            targets = [member.name, member.linkname] if member.islnk() or member.issym() else [member.name]
            if not (member.isreg() or member.isdir() or len(targets) == 2) or any(map(_leads_out, targets)):
                raise UserError(
                    f"{os.fsdecode(self.name or '')} is refused: its member {member.name!r} leads out of the folder "
                    "that it is unpacked to"
                )
        return names


def _leads_out(path: str) -> bool:
    return path.startswith(("/", "\\")) or ".." in path.replace("\\", "/").split("/") or path[1:2] == ":"


def adjust(module: Any) -> Iterator[None]:
    yield
    module.tarfile = Overlay(tarfile, open=CheckedArchive.open)
