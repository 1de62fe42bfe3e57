"""What a beam search keeps between its steps."""
