"""The page of a sweep in a real browser: hostile names are text, and a phone shows it without scrolling sideways."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import pytest

from dspark_factory.reporting.sweep_page import sweep_page
from dspark_factory.reporting.sweep_plots import figures
from dspark_factory.reporting.sweep_summary import summarize
from tests.reporting.sweep_records import write_troubled_sweep

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")

# A frame gives the page a viewport of exactly this width; windows have a smallest width of their own.
WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>
<iframe id="page" style="border:0" width="{width}" height="800" srcdoc="{page}"></iframe>
<script>
window.addEventListener("load", () => {{
  const inner = document.getElementById("page").contentDocument, view = inner.documentElement;
  const dark = inner.defaultView.matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("found").textContent = JSON.stringify({{
    scroll: view.scrollWidth, client: view.clientWidth, scripts: inner.scripts.length, dark: dark,
    tables: [...inner.querySelectorAll(".scroll")].map(box => box.scrollWidth > box.clientWidth),
    text: inner.body.innerText, background: inner.defaultView.getComputedStyle(inner.body).backgroundColor,
    label: inner.defaultView.getComputedStyle(inner.querySelector("svg text")).fill,
  }});
}});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sweep")
    write_troubled_sweep(folder)
    summary = summarize(folder)
    return sweep_page(summary, figures(summary.rows))


def dom(path: Path, *options: str) -> str:
    """The document after its scripts ran."""
    assert CHROMIUM is not None
    finished = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
            f"--user-data-dir={path.parent / 'profile'}", *options, "--dump-dom", path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip
    return finished.stdout


@pytest.mark.parametrize(("width", "scheme"), [(360, 0), (360, 1), (1280, 0)])
def test_it_fits_the_screen_and_runs_nothing(page: str, tmp_path: Path, width: int, scheme: int) -> None:
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(WRAPPER.format(width=width, page=escape(page)), encoding="utf-8")
    document = dom(wrapper, f"--blink-settings=preferredColorScheme={scheme}")
    match = re.search(r'<pre id="found">(.*?)</pre>', document, re.DOTALL)
    assert match
    found = json.loads(unescape(match[1]))
    assert found["client"] <= width
    assert found["scroll"] <= found["client"]
    assert found["tables"][-1] or width > 360  # the wide table scrolls on its own
    assert found["scripts"] == 0
    assert "<script>alert(1)</script>" in found["text"]
    assert "[bold]loud[/bold]" in found["text"]
    assert found["dark"] is (scheme == 0)
    assert found["background"] == ("rgb(20, 23, 28)" if scheme == 0 else "rgb(255, 255, 255)")
    assert found["label"] == ("rgb(230, 232, 235)" if scheme == 0 else "rgb(31, 35, 40)")


def test_the_document_itself_has_no_script(page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    document = dom(path)
    assert "&lt;script&gt;alert(1)" in document
    assert "<script" not in document
