"""``--dataset-impl fasta`` puts the name of a data file into a shell's command line, where it can be a command.

The positions and lengths of a file's entries are counted in Python here, which needs neither a shell nor its tools.
"""

from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    import numpy as np

    def build_index(self: Any, path: str) -> tuple[Any, Any]:
        offsets: list[int] = []
        sizes: list[int] = []
        with open(module.fasta_file_path(path), "rb") as file:
            position = 0
            for line in file:
                if line.startswith(b">"):
                    offsets.append(position)
                    sizes.append(0)
                elif sizes:
                    sizes[-1] += len(line.strip())
                position += len(line)
        return np.array(offsets, dtype=np.int64), np.array(sizes, dtype=np.int64)

    module.FastaDataset._build_index = build_index
