"""Typed configuration: schema, rules, and loading with every reason at once."""

from dspark_factory.config.load import load_config
from dspark_factory.config.schema import Config

__all__ = ["Config", "load_config"]
