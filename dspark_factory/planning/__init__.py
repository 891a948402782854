"""Numbers only: dims, gates, buffers, graph keys. Imports no torch."""
