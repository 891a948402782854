"""Hydra configurations of the plugin, found through its descriptor."""
