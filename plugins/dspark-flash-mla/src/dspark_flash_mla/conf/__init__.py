"""Hydra configs of the backend."""
