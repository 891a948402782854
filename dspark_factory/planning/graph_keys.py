"""Which graphs are captured, and which one a batch runs on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from dspark_factory.planning.dims import Dims


class Mode(Enum):
    """How requests expand to rows."""

    DECODE = "decode"
    TARGET_VERIFY = "target_verify"
    EXTEND = "extend"
    DRAFT_BLOCK = "draft_block"
    IDLE = "idle"


class LayoutForm(Enum):
    """Whether every request has the same number of rows or its own."""

    UNIFORM = "uniform"
    RAGGED = "ragged"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphKey:
    """Identity of a captured graph; everything that changes a shape or a branch is in it.

    Attributes:
        mode: how requests expand to rows.
        requests: request slots, padding included.
        rows: rows of the forward, padding included.
        width: most rows that one request may have.
        form: uniform or ragged rows.
    """

    mode: Mode
    requests: int
    rows: int
    width: int
    form: LayoutForm

    def __str__(self) -> str:
        """Short name for logs and records: ``target_verify/uniform 4x6``."""
        shape = f"{self.requests}x{self.width}"
        if self.form is LayoutForm.RAGGED:
            shape += f"/{self.rows}"
        return f"{self.mode.value}/{self.form.value} {shape}"


def uniform_key(mode: Mode, *, requests: int, width: int) -> GraphKey:
    """Key of a uniform layout: ``requests × width`` rows."""
    return GraphKey(mode=mode, requests=requests, rows=requests * width, width=width, form=LayoutForm.UNIFORM)


def ragged_key(mode: Mode, *, requests: int, rows: int, width: int) -> GraphKey:
    """Key of a ragged layout with ``rows`` rows in all."""
    return GraphKey(mode=mode, requests=requests, rows=rows, width=width, form=LayoutForm.RAGGED)


def idle_key() -> GraphKey:
    """Key of a step without requests; nothing is launched for it."""
    return uniform_key(Mode.IDLE, requests=0, width=1)


def ragged_tiers(requests: int, width: int, shares: Iterable[float]) -> tuple[int, ...]:
    """Row counts captured for ``requests`` ragged requests: shares of the full count, the full one included.

    A tier holds at least one row per request, because every request verifies its anchor.
    """
    full = requests * width
    tiers = {full} | {max(requests, -(-int(full * share * 1024) // 1024)) for share in shares}
    return tuple(sorted(tier for tier in tiers if tier <= full))


def captured_keys(dims: Dims) -> tuple[GraphKey, ...]:
    """Every graph to capture, largest first.

    Decode graphs exist always (a request without room for a draft decodes), verify graphs for every declared
    draft-token candidate, or, with a schedule, for the widths that batches of that graph's size use.
    """
    keys: list[GraphKey] = []
    below = 0
    for requests in dims.capture_requests:
        keys.append(uniform_key(Mode.DECODE, requests=requests, width=1))
        widths = dims.verify_widths
        if dims.schedule:
            # Batches from the next smaller graph's size on run on this one.
            widths = {dims.verify_width(size) for size in range(below + 1, requests + 1)} - {None}
        below = requests
        for width in sorted(width for width in widths if width is not None):
            keys.append(uniform_key(Mode.TARGET_VERIFY, requests=requests, width=width))
            if dims.ragged:
                keys += [
                    ragged_key(Mode.TARGET_VERIFY, requests=requests, rows=rows, width=width)
                    for rows in ragged_tiers(requests, width, dims.ragged_shares)
                ]
    return tuple(sorted(keys, key=_size, reverse=True))


def _size(key: GraphKey) -> tuple[int, int, int, str, str]:
    return (key.rows, key.requests, key.width, key.mode.value, key.form.value)


def smallest_fitting(keys: Sequence[GraphKey], needed: GraphKey) -> GraphKey | None:
    """The captured key with fewest rows that serves ``needed``, or ``None``.

    Mode, width and form must be equal: 32 requests of 6 rows never run on a graph of 192 requests of one row,
    and a ragged batch never on a uniform graph.
    """
    fitting = [
        key
        for key in keys
        if (key.mode, key.width, key.form) == (needed.mode, needed.width, needed.form)
        and key.requests >= needed.requests
        and key.rows >= needed.rows
    ]
    return min(fitting, key=_size, default=None)
