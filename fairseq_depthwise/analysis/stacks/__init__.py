"""What the layers of a stack do: similarity and gates."""
