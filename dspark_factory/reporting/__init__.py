"""Reports made from records alone: tables on a console."""

from dspark_factory.reporting.console import output_console, readable_nbytes
from dspark_factory.reporting.tables import print_plan, print_stages

__all__ = ["output_console", "print_plan", "print_stages", "readable_nbytes"]
