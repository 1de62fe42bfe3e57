"""A folder of fairseq's own examples, given with ``--user-dir``, is imported under a name that nothing is patched for.

The models in it, data2vec's for one, evaluate the options that a checkpoint records. Here its modules get the patches
for what they mention, as those of fairseq do. A folder of the user's own is left alone.
"""

import functools
import os
from collections.abc import Iterator
from typing import Any

from fairseq_compat import import_hook


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.import_user_module
    own = os.path.dirname(os.path.realpath(module.__file__))

    @functools.wraps(original)
    def import_user_module(args: Any) -> None:
        given = getattr(args, "user_dir", None)
        # As fairseq looks for it: from here, then from its own folder.
        for folder in (os.path.abspath(given), os.path.join(own, given)) if given else ():
            if os.path.exists(folder):
                if os.path.realpath(folder).startswith(os.path.join(own, "examples", "")):
                    import_hook.PACKAGES.add(os.path.basename(folder))
                break
        original(args)

    module.import_user_module = import_user_module
