"""The arena: the only place that allocates."""
