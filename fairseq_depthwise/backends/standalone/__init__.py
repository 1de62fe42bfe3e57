"""What looks through exported files, and what compiles; it imports nothing of this package, nor fairseq."""
