"""Training on processes and machines that come and go: ``fairseq-depthwise train --elastic``.

:mod:`.launcher` starts the processes with torchrun and starts them again, :mod:`.rank` is what such a process does
beyond training, and :mod:`.batches` gives the processes their parts of an update. docs/many_machines.md has the whole.
"""
