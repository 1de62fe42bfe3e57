"""Model families, one folder each: configuration, encoder and decoder, presets."""
