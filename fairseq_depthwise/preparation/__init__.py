"""From raw parallel text to a folder for fairseq-train: the steps of ``fairseq-depthwise prepare``."""
