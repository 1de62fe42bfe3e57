"""What fairseq's commands and ours share: streams, and how they end."""
