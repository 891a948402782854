"""The ``dspark-report`` command: tables, files and a page from the records of a sweep, and two sweeps compared.

Exit status: 0 every job counts, 1 some do not, 2 refused with one ``error:`` line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Sequence
from math import isfinite
from pathlib import Path

from dspark_factory.errors import DsparkError
from dspark_factory.reporting.console import discard_output, output_console
from dspark_factory.reporting.sweep_compare import compare, print_comparison, several_jobs
from dspark_factory.reporting.sweep_files import write_csv, write_parquet
from dspark_factory.reporting.sweep_page import sweep_page
from dspark_factory.reporting.sweep_plots import TITLES, SweepFigure, figures, shown_of
from dspark_factory.reporting.sweep_summary import MissingPackage, SweepSummary, first_line, summarize
from dspark_factory.reporting.sweep_svg import standalone
from dspark_factory.reporting.sweep_table import print_sweep
from dspark_factory.results import RECORD_NAME
from dspark_factory.sweeps.recommend import NOISE_LIMIT, TIE, candidates_of

DONE, PROBLEMS, REFUSED = 0, 1, 2

HELP = f"""\
Reads every {RECORD_NAME} below DIR, prints all jobs and batch sizes, recommends num_draft_tokens for each batch size,
and writes report.csv, report.html and report-FIGURE.svg into DIR.

  dspark -m +sweep=draft_tokens                  run a sweep; its folder is printed
  dspark-report multirun/2025-01-31/12-00-00     tables, files and the page
  dspark-report DIR --out report --parquet       files elsewhere, with report.parquet
  dspark-report DIR --no-files                   tables only
  dspark-report --compare BEFORE AFTER           is the second sweep faster?

num_draft_tokens counts the rows that a request verifies in a step, the anchor included.
Exit status: 0 every job counts; 1 a job failed, was killed, still runs, cannot be read or had a knob without effect;
2 there is nothing to report.
"""


class ReportError(DsparkError):
    """There is nothing to report, or no place to write it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if (parsed.folder is None) == (parsed.compare is None):
        parser.error("give the folder of a sweep, or --compare with two")
    try:
        return _compare(parsed) if parsed.compare else _report(parsed)
    except DsparkError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        discard_output()
        return DONE


def _report(parsed: argparse.Namespace) -> int:
    summary = _summary(parsed.folder, parsed)
    lines: list[str] = []
    try:
        # Before the tables, so that a reader who stops early, such as head, costs no file.
        if not parsed.no_files:
            _write_files(summary, parsed.out or parsed.folder, lines, parquet=parsed.parquet)
    finally:
        print_sweep(summary, output_console())
        print("", *lines, sep="\n", flush=True)
    return PROBLEMS if summary.problems else DONE


def _compare(parsed: argparse.Namespace) -> int:
    left_out, found, problems = [], [], False
    for label, folder in zip("AB", parsed.compare, strict=True):
        summary = _summary(folder, parsed)
        candidates, reasons = candidates_of(summary.rows)
        reasons += map(str, summary.unreadable)
        left_out += [f"{label}, {reason}" for reason in [*reasons, *several_jobs(candidates)]]
        found.append(candidates)
        problems = problems or bool(summary.problems)
    if not any(found):
        raise ReportError(
            f"neither sweep measured anything: {'; '.join(map(first_line, left_out)) or 'no batches'}"
        )
    print(f"A  {parsed.compare[0]}\nB  {parsed.compare[1]}\n", flush=True)
    print_comparison(compare(*found, tie=parsed.tie), left_out, output_console())
    return PROBLEMS if problems else DONE


def _summary(folder: Path, parsed: argparse.Namespace) -> SweepSummary:
    summary = summarize(folder, noise_limit=parsed.noise_limit, tie=parsed.tie)
    if not summary.rows and not summary.unreadable:
        raise ReportError(f"{folder} holds no {RECORD_NAME}; give the folder of a sweep")
    return summary


def _write_files(summary: SweepSummary, folder: Path, lines: list[str], *, parquet: bool) -> None:
    """Write the report; ``lines`` gets what to tell about it, also when a later part fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(summary.rows, folder / "report.csv")
        texts = _texts(summary, lines)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        lines.append(f"wrote into {folder}: {', '.join(['report.csv', *texts])}")
        removed = _remove_stale(folder, texts)
        if removed:
            lines.append(f"removed figures of an earlier report from {folder}: {', '.join(removed)}")
        if parquet:
            write_parquet(summary.rows, folder / "report.parquet")
            lines.append(f"wrote {folder / 'report.parquet'}")
    except OSError as error:
        raise ReportError(f"cannot write the report into {folder}: {error.strerror or error}") from error


def _texts(summary: SweepSummary, lines: list[str]) -> dict[str, str]:
    """File name → text of the figures and the page, without those whose package is missing."""
    drawn: dict[str, SweepFigure] = {}
    try:
        drawn = figures(summary.rows)
    except MissingPackage as error:
        lines.append(str(error))
    shown = shown_of(drawn)
    if shown:
        lines.append(f"figures show {shown}; the table has every job and batch size")
    texts = {_figure_file(name): standalone(figure.svg) for name, figure in drawn.items()}
    try:
        texts["report.html"] = sweep_page(summary, drawn)
    except MissingPackage as error:
        lines.append(str(error))
    return texts


def _remove_stale(folder: Path, written: Container[str]) -> list[str]:
    """Delete figures of an earlier report that this one does not have, as they would pass for its own."""
    stale = [name for name in map(_figure_file, TITLES) if name not in written and (folder / name).is_file()]
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    return stale


def _figure_file(name: str) -> str:
    return f"report-{name}.svg"


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not isfinite(share) or not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share from 0 to 1, as 0.15 is for 15 %")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dspark-report", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="folder of a sweep")
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A", "B"), help="compare the speeds of two sweeps"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder for the files; DIR by default")
    parser.add_argument("--parquet", action="store_true", help="write report.parquet too; needs pyarrow")
    parser.add_argument("--no-files", action="store_true", help="print only")
    parser.add_argument(
        "--noise-limit",
        type=_share,
        default=NOISE_LIMIT,
        metavar="SHARE",
        help="leave out what scatters by more than this share of its median (default %(default)s)",
    )
    parser.add_argument(
        "--tie",
        type=_share,
        default=TIE,
        metavar="SHARE",
        help="speeds closer than this share are equal (default %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
