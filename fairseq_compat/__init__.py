"""Makes the unmodified fairseq 0.12.2 run on a current Python, NumPy and PyTorch.

Installing this distribution puts ``fairseq_compat.pth`` into site-packages; Python reads it at start-up and
calls :func:`install`. From then on the few modules listed in :mod:`fairseq_compat.import_hook` are adjusted at the
moment they are imported, each by one file of :mod:`fairseq_compat.patches`. No file of fairseq is touched, and a
process that never imports fairseq pays for one small class on ``sys.meta_path``.

This package knows nothing of ``fairseq_depthwise`` and can be used without it.
"""

from fairseq_compat.errors import UserError
from fairseq_compat.import_hook import install

__all__ = ["UserError", "install"]
