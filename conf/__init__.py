"""Hydra configuration groups, installed as ``dspark_factory.conf``."""
