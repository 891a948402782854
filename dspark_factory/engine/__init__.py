"""Decoding: requests join, are extended in chunks, verified step by step, and leave."""
