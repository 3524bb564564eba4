"""KV schemes (layer 2): the memory format per row and how it is attended."""
