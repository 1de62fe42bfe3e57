"""Option values that run code where they are evaluated as Python."""

from __future__ import annotations

from pathlib import Path

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
