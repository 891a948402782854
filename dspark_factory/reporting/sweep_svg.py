"""SVG by matplotlib that fits into any page: its text and axes take the page's colour."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable
from html import escape
from typing import Any

from dspark_factory.reporting.sweep_summary import MissingPackage

COLOURS = (
    "#3b82f6", "#d97706", "#0d9488", "#ef4444", "#a855f7",
    "#65a30d", "#ec4899", "#a16207", "#64748b", "#0891b2",
)  # fmt: skip
"""Neither light nor dark: each has a contrast of 3 to white and to near black."""

MARKERS = "osD^vPX<>p"
"""One per colour, for those who cannot tell the colours apart."""

STANDALONE_STYLE = (
    "<style>svg{color-scheme:light dark;color:#1f2328}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e8eb}}</style>"
)
"""For a figure in a file of its own, which has no page to take a colour from."""

_NOTE_WIDTH, _NOTE_HEIGHT = 72, 0.16
"""Characters of a line of small text, and its height in inches."""
_OPTIONS = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and needs no outlines
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that sizes are known; it is wide, others fit
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#000000",
    "text.parse_math": False,  # a name with two dollar signs is no formula
}
_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw(name: str, title: str, fill: Callable[[Any], None], note: str = "") -> str:
    """One figure as an ``<svg>`` element; the same data gives the same text.

    Args:
        name: of the figure; keeps its identifiers apart from those of others on the page.
        title: what it shows, for those who do not see it.
        fill: draws on the axes that it gets.
        note: sentence above the axes.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage("figures need matplotlib: pip install 'dspark-factory[plots]'") from error
    options: dict[Any, Any] = {**_OPTIONS, "svg.hashsalt": name}
    with matplotlib.rc_context(options):
        lines = textwrap.wrap(note, _NOTE_WIDTH)
        figure = Figure(
            figsize=(4.2, 3.5 + _NOTE_HEIGHT * len(lines)), layout="constrained", facecolor="none"
        )
        axes = figure.add_subplot(facecolor="none")
        fill(axes)
        if lines:
            figure.suptitle("\n".join(lines), x=0.02, horizontalalignment="left", fontsize=8)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=_legend_columns(labels))
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(stream, metadata=_METADATA)
    return _for_a_page(stream.getvalue(), f"{title}. {note}" if note else title)


def standalone(svg: str) -> str:
    """The figure as a document of its own, in dark and light."""
    start = svg.index(">") + 1
    return f"{svg[:start]}{STANDALONE_STYLE}{svg[start:]}"


def tick_text(value: float) -> str:
    """A number on an axis: ``12,000`` and ``0.5``; matplotlib's own are formulas on logarithmic axes."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def scale_axis(axis: Any, values: list[float]) -> None:
    """Logarithmic where the values span more than a factor of 20, else linear from zero."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = min(values), max(values)
    if low > 0 and high > 20 * low:
        set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
        set_scale("log")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
    else:
        set_limit = axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim
        set_limit(0, high * 1.08 or 1)
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))


def _legend_columns(labels: list[str]) -> int:
    """As many as fit a line of about 62 characters, four of them for the mark."""
    return max(1, min(len(labels), 62 // (max(map(len, labels)) + 5)))


def _for_a_page(text: str, title: str) -> str:
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Groups are not referred to, and their names would be the same in every figure of a page.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    # matplotlib names no colour for black text and areas, so they inherit this one.
    start = f'<svg fill="currentColor" role="img" aria-label="{escape(title)}"'
    return text.replace("#000000", "currentColor").replace("<svg", start, 1)
