"""With ``--enable-reservsed-directions-shared-datasets`` language tags get into sentences of the other direction.

That option of ``translation_multi_simple_epoch`` is to read the files of English-German once for both directions. But
what it keeps are the sentences with the tag of the first direction: with ``--encoder-langtok tgt`` the source of
German-English has no tag, and its target has ``__de__``. Here files are opened once in any case, before tags are added,
and the option changes nothing. This halves the open files of a run that has both directions of its pairs.
"""

import functools
import weakref
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    manager = module.MultilingualDatasetManager
    load_langpair_dataset, load_data = manager.load_langpair_dataset, manager.load_data.__func__
    in_use: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    @functools.wraps(load_langpair_dataset)
    def load_without_sharing(self: Any, *args: Any, langpairs_sharing_datasets: Any = None, **kwargs: Any) -> Any:
        return load_langpair_dataset(self, *args, langpairs_sharing_datasets=None, **kwargs)

    @functools.wraps(load_data)
    def load_once(cls: Any, path: str, vdict: Any, impl: str | None) -> Any:
        dataset = in_use.get(path)
        if dataset is None:
            dataset = load_data(cls, path, vdict, impl)
            # Other kinds read ahead for one user.
            if isinstance(dataset, module.indexed_dataset.MMapIndexedDataset):
                in_use[path] = dataset
        return dataset

    manager.load_langpair_dataset = load_without_sharing
    manager.load_data = classmethod(load_once)
