"""The ``dspark-plugins`` command: what is installed, whether a plugin keeps the contract, and a new one.

Exit status: 0 done, 1 a check failed, 2 refused with one ``error:`` line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_factory.errors import DsparkError, PluginError
from dspark_factory.planning.trial import answering_failure
from dspark_factory.registry import backend_plugins, buffer_plugins, origin_of, plugin_failures
from dspark_factory.registry.config_files import config_groups
from dspark_factory.registry.registry import unknown_name
from dspark_factory.reporting.console import discard_output

DONE, CHECK_FAILED, REFUSED = 0, 1, 2
OWN_DISTRIBUTION = "dspark-factory"

LIST_HELP = """\
Every buffer provider and attention backend that is installed, the built-in ones included. A plugin that cannot be
used is listed with the reason and stops nobody who does not ask for it.

  dspark-plugins list
  dspark-plugins list --json
  DSPARK_PLUGINS=accept_history dspark-plugins list     import no other third-party plugin
  DSPARK_TRACE_PLUGINS=1 dspark-plugins list            show the traceback of a broken one
"""
CHECK_HELP = """\
Runs the conformance suite on a plugin: purity of its gate, zero bytes when off, planned equals allocated, capacity,
the capture lint, replays, and for a backend agreement with the reference. Exits with 1 when a check fails.

  dspark-plugins check extend_seq_lens
  dspark-plugins check my_backend --set device=cuda     with overrides for every configuration
"""
NEW_HELP = """\
Writes a complete distribution that works as it stands: options, provider, Hydra files, README and tests.

  dspark-plugins new accept_history                     ./dspark-accept-history, a buffer provider
  dspark-plugins new fast_rows --backend --into ../     ../dspark-fast-rows, an attention backend

Then:  cd dspark-accept-history && pip install -e '.[test]' && dspark-plugins check accept_history
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the listing; the fields are the keys of ``list --json``."""

    name: str
    kind: str
    distribution: str | None
    version: str | None
    config_groups: tuple[str, ...]
    error: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except DsparkError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        discard_output()
        return DONE


def listing() -> list[Listed]:
    """Usable plugins in the order found, then those that cannot be used."""
    return [*_usable(), *_unusable()]


def _usable() -> Iterator[Listed]:
    for plugin in [*buffer_plugins.values(), *backend_plugins.values()]:
        origin = origin_of(plugin)
        groups = config_groups(plugin)
        error = None if origin.distribution == OWN_DISTRIBUTION else answering_failure(plugin)
        yield Listed(plugin.name, plugin.kind, origin.distribution, origin.version, groups, error)


def _unusable() -> Iterator[Listed]:
    for item in plugin_failures():
        yield Listed(item.name, item.kind, item.distribution, item.version, (), item.reason)


def _list(parsed: argparse.Namespace) -> int:
    listed = listing()
    if parsed.json:
        print(json.dumps([asdict(item) for item in listed], indent=2))
        return DONE
    rows = [
        (item.name, item.kind, f"{item.distribution or '-'} {item.version or ''}".strip(),
         ", ".join(item.config_groups) or "-", "error" if item.error else "ok")
        for item in listed
    ]  # fmt: skip
    _print_table(("name", "kind", "distribution", "config groups", "state"), rows)
    for item in listed:
        if item.error:
            print(f"\n{item.name} ({item.distribution or 'not installed'}): {item.error}")
    return DONE


def _check(parsed: argparse.Namespace) -> int:
    name = parsed.name
    if name not in buffer_plugins and name not in backend_plugins:
        failure = buffer_plugins.failure(name) or backend_plugins.failure(name)
        known = [*buffer_plugins, *backend_plugins]
        raise PluginError(str(failure or unknown_name("plugin", name, known)))
    # Imported here, because the suite needs torch and the other commands do not.
    from dspark_factory.testing import check_plugin

    results = check_plugin(name, overrides=parsed.set)
    _print_table(
        ("check", "result"),
        [
            (item.name, "FAILED" if not item.passed else "not run" if item.skipped else "ok")
            for item in results
        ],
    )
    for item in results:
        if item.message:
            print(f"\n{item.name}: {item.message}")
    failed = sum(not item.passed for item in results)
    print(f"\n{name}: {failed} of {len(results)} checks failed")
    return CHECK_FAILED if failed else DONE


def _new(parsed: argparse.Namespace) -> int:
    from dspark_factory.scaffold import write_distribution

    kind = "backends" if parsed.backend else "buffers"
    folder = write_distribution(parsed.name, kind, parsed.into)
    select = f"backend={parsed.name}" if parsed.backend else f"'buffers=[default,{parsed.name}]'"
    print(f"wrote {folder}")
    print(f"  pip install -e {folder}")
    print(f"  dspark-plugins check {parsed.name}")
    print(f"  dspark task=plan {select}")
    return DONE


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Plain columns, never wrapped or coloured, so that they can be searched and cut."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dspark-plugins",
        description="Buffer providers and attention backends: list, check, or start a new one.",
    )
    commands: Any = parser.add_subparsers(required=True, metavar="COMMAND")
    listed = _command(commands, "list", "every plugin, and why one cannot be used", LIST_HELP, _list)
    listed.add_argument("--json", action="store_true", help="one JSON document on stdout")
    checked = _command(commands, "check", "run the conformance suite on a plugin", CHECK_HELP, _check)
    checked.add_argument("name", metavar="NAME", help="name of an installed plugin")
    checked.add_argument(
        "--set", action="append", default=[], metavar="OVERRIDE", help="a Hydra override; repeatable"
    )
    new = _command(commands, "new", "write a new plugin distribution", NEW_HELP, _new)
    new.add_argument("name", metavar="NAME", help="name of the plugin, in snake_case")
    new.add_argument(
        "--backend", action="store_true", help="an attention backend instead of a buffer provider"
    )
    new.add_argument("--into", type=Path, default=Path(), metavar="DIR", help="folder that gets the new one")
    return parser


def _command(commands: Any, name: str, summary: str, description: str, run: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(run=run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
