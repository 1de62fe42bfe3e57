"""One file per adjustment.

Each file has a generator function ``adjust(module)``: what stands before its ``yield`` runs before the body of
``module`` is executed, what stands after it runs afterwards. The first line of the file's docstring says what is
wrong without it; ``fairseq-depthwise doctor`` prints that line. Where names of ``module`` are replaced it is typed
``Any``: fairseq has no type hints to check them against. Which module gets which patch is listed in
:mod:`fairseq_compat.import_hook`.
"""
