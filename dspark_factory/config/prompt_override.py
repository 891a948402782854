"""A prompt on the command line is text: what Hydra's grammar would read as something else is quoted for it."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

KEY = "workload.prompt="


def quote_prompts(arguments: Sequence[str], *, sweeping: bool = False) -> list[str]:
    """The arguments with ``workload.prompt=def main():`` quoted, so that it need not be quoted twice in a shell.

    Values that the user quoted for Hydra, ``null`` and, in a sweep, lists of choices stay as they are.
    """
    return [
        _quoted(item) if item.startswith(KEY) and _needs_quotes(item, sweeping) else item
        for item in arguments
    ]


def _needs_quotes(argument: str, sweeping: bool) -> bool:
    raw = argument.removeprefix(KEY)
    try:
        parsed = OverridesParser.create().parse_override(argument)
    except HydraException:
        return True
    if parsed.is_sweep_override():
        return not sweeping
    value = parsed.value()
    quoted_by_user = len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\""
    if value is None or quoted_by_user:
        return False
    return value != raw or "${" in raw


def _quoted(argument: str) -> str:
    """The value as Hydra itself would quote it, with interpolations kept as text."""
    text = argument.removeprefix(KEY).replace("${", "\\${")
    return KEY + QuotedString(text=text, quote=Quote.single).with_quotes()
