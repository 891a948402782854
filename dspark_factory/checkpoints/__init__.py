"""Checkpoints that the project ships, one folder each; ``training.json`` in it says how it was trained."""
