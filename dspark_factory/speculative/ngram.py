"""n-gram drafting: what followed the longest earlier occurrence of the latest tokens is proposed again."""

from __future__ import annotations

from collections.abc import Iterable


class NgramDrafter:
    """Drafts for one sequence, which it follows token by token.

    The history is kept as text with one character per token, so that the search for a match is the
    interpreter's own substring search; a suffix of length n can only match where its shorter suffixes do, which
    allows a binary search for the longest.

    Args:
        min_match: shortest match that proposes anything, in tokens.
        max_match: longest match looked for, in tokens.
    """

    def __init__(self, *, min_match: int, max_match: int) -> None:
        self._min_match, self._max_match = min_match, max_match
        self._history = ""

    def extend(self, tokens: Iterable[int]) -> None:
        """Append committed tokens."""
        self._history += "".join(map(chr, tokens))

    def propose(self, count: int) -> list[int]:
        """Up to ``count`` tokens; none without a match.

        The latest occurrence of the longest match wins. A match that runs into the end of the sequence goes on with
        its own proposals, so a repeating pattern fills all drafts.
        """
        if count < 1:
            return []
        start = self._longest_match()
        if start is None:
            return []
        known = self._history
        period = len(known) - start
        return [ord(known[start + index % period]) for index in range(count)]

    def _longest_match(self) -> int | None:
        """Position behind the latest occurrence of the longest matching suffix, or ``None``."""
        low, high = self._min_match, min(self._max_match, len(self._history) - 1)
        found = None
        while low <= high:
            length = (low + high) // 2
            position = self._history.rfind(self._history[-length:], 0, len(self._history) - 1)
            if position < 0:
                high = length - 1
            else:
                found = position + length
                low = length + 1
        return found
