"""What fairseq's commands and ours share: ranges of options, streams, and how they end."""
