"""Linear layers: batched over units, prepacked for inference."""
