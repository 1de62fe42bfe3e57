"""The two graphs of a beam search: traced, compiled, in ONNX files, and the search over them."""
