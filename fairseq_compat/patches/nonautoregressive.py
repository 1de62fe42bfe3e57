"""Patches for non-autoregressive models: the Levenshtein Transformer, and others that refine whole translations.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import importlib.util
from typing import Any

from fairseq_compat.patching import patch


@patch("fairseq.models.nat.levenshtein_utils", "fairseq.models.nat.insertion_transformer")
def provide_libnat(module: Any) -> None:
    """Levenshtein and insertion Transformers stop in their first update: ``cannot import name 'libnat'``.

    fairseq's source distribution lacks the extension. Here :mod:`fairseq_compat.edit_paths` replaces it, if it is not
    installed.
    """
    import fairseq

    if importlib.util.find_spec("fairseq.libnat") is not None:  # compiled from fairseq's repository
        return
    from fairseq_compat import edit_paths as libnat

    # "from fairseq import libnat" takes an attribute of the package.
    fairseq.libnat = libnat
    if hasattr(module, "load_libnat"):  # at each call it would print that there is no version for GPUs
        module.load_libnat = lambda: (libnat, False)  # False: not for CUDA


@patch("fairseq.modules.dynamic_crf_layer", function="DynamicCRF.__init__")
def limit_crf_beam(original: Any, self: Any, num_embedding: int, low_rank: int = 32, beam_size: int = 64) -> None:
    """``nacrf_transformer`` stops if ``--crf-beam-approx``, 64 by default, is larger than the dictionary.

    Here it is limited to the size of the dictionary.
    """
    original(self, num_embedding, low_rank, min(beam_size, num_embedding))
