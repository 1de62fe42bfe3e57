"""fairseq-preprocess of this interpreter, with its patches, whatever PATH finds: `python preprocess.py OPTION...`.

`python -m fairseq_cli.preprocess` runs without patches, and binarizes texts that are not parallel.
"""

from __future__ import annotations

import importlib

import fairseq_compat

if __name__ == "__main__":
    fairseq_compat.install()  # where Python reads no start-up hooks
    importlib.import_module("fairseq_cli.preprocess").cli_main()
