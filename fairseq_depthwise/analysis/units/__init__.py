"""How parallel units differ."""
