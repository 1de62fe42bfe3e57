"""Option values that run code where they are evaluated as Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

#: Each makes the file ``{witness}`` if it is evaluated; they reach Python in different ways.
HOSTILE: dict[str, str] = {
    "import": "__import__('pathlib').Path('{witness}').touch()",
    "in a list": "[__import__('os').system('touch {witness}'), 1][1:]",
    "in a tuple": "(0.9, open('{witness}', 'w') and 0.98)",
    "in a dictionary": "{{'a': open('{witness}', 'w')}}",
    "lambda": "(lambda: open('{witness}', 'w'))()",
    "comprehension": "[open(path, 'w') and 1 for path in ['{witness}']]",
    "subclasses": "[one for one in ().__class__.__base__.__subclasses__() if one.__name__ == '_wrap_close'][0]"
    ".__init__.__globals__['system']('touch {witness}')",
    "f-string": "f\"{{open('{witness}', 'w')}}\"",
    "exec": "exec(\"open('{witness}', 'w')\")",
    "starred": "[*map(open, ['{witness}'], ['w'])]",
    "conditional": "1 if open('{witness}', 'w') else 2",
    "repeated": "[open('{witness}', 'w') and 1] * 3",
}


def hostile(kind: str, witness: Path) -> str:
    """A value that makes ``witness`` when it is evaluated."""
    return HOSTILE[kind].format(witness=witness)


class Reduced:
    """Pickled as a call of a function, and what it returns is given a state."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


#: An array whose bytes NumPy takes for the address of an object as soon as it is copied, by the state of its dtype.
FORGED_ARRAY = Reduced(
    np.ones(1).__reduce__()[0],
    (np.ndarray, (0,), b"b"),
    (
        1, (1,),
        Reduced(np.dtype, ("f8", False, True), (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 1)),
        False, b"ABCDABCD",
    ),
)  # fmt: skip
