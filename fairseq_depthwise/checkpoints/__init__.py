"""Reading, averaging and describing checkpoints."""
