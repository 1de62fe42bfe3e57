"""The subcommands of ``fairseq-depthwise``: parsers and printing. What they compute lives elsewhere."""
