"""A plugin registered in the process behaves like an installed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_factory import (
    ConfigError,
    PluginError,
    load_config,
    plan,
    register_backend_plugin,
    register_buffer_plugin,
)
from dspark_factory.api import BackendPlugin, BackendSpec, BufferPlugin, BufferSpec
from dspark_factory.registry import buffer_plugins, discovery, origin_of
from tests.conftest import Register
from tests.third_party import CHOOSY, HISTORY, HistorySpec, wanting

CODE = "tests.third_party:History"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration package as a plugin brings it."""
    package = tmp_path / f"conf_of_{tmp_path.name}"  # modules are cached by name
    (package / "buffers").mkdir(parents=True)
    (package / "history").mkdir()
    (package / "__init__.py").touch()
    head = "# @package buffers.history\n"
    (package / "buffers" / "history.yaml").write_text(
        f"{head}defaults:\n  - /schema/buffers@_here_: history\n  - _self_\ndepth: 8\n"
    )
    (package / "history" / "deep.yaml").write_text(f"{head}depth: 99\n")
    (package / "history" / "wrong.yaml").write_text(f"{head}dept: 99\n")
    monkeypatch.syspath_prepend(tmp_path)
    return package.name


def test_schema_option_and_own_group_come_with_it(register: Register, conf: str) -> None:
    register(BufferPlugin(name="history", spec=HistorySpec, provider=CODE, config_package=conf))

    def depth(*overrides: str) -> object:
        spec = load_config(["buffers=[default,history]", *overrides]).buffers["history"]
        assert isinstance(spec, HistorySpec)
        return spec.depth

    assert depth() == 8
    assert depth("+history=deep") == 99
    assert depth("+history=deep", "buffers.history.depth=3") == 3
    for override, words in {
        "+history=dep": "did you mean deep?",
        "+histry=deep": "did you mean history?",
        "history=deep": r"write \+history=deep",
        "+buffers.history.dept=3": "did you mean buffers.history.depth?",
    }.items():
        with pytest.raises(ConfigError, match=words):
            depth(override)
    with pytest.raises(ConfigError, match=r"it sets options of history; select it with buffers="):
        load_config(["+history=deep"])


def test_a_file_that_exists_elsewhere_is_refused(register: Register, conf: str, tmp_path: Path) -> None:
    (tmp_path / conf / "model").mkdir()
    (tmp_path / conf / "model" / "tiny.yaml").write_text("name: other\n")
    with pytest.raises(PluginError, match=r"model/tiny\.yaml exists in dspark_factory\.conf too"):
        register(BufferPlugin(name="history", spec=HistorySpec, provider=CODE, config_package=conf))
    with pytest.raises(PluginError, match=r"buffers/default\.yaml exists in dspark_factory\.conf too"):
        register(BufferPlugin(name="default", spec=BufferSpec, provider=CODE))


def test_names_and_descriptors_are_checked(register: Register) -> None:
    register(HISTORY)
    assert str(origin_of(HISTORY)) == "registered in this process"
    with pytest.raises(PluginError, match="registered twice"):
        register_buffer_plugin(HISTORY)
    with pytest.raises(PluginError, match="registered twice"):
        register_buffer_plugin(BufferPlugin(name="logits", spec=BufferSpec, provider=CODE))
    with pytest.raises(PluginError, match="made for contract version 7"):
        register_buffer_plugin(BufferPlugin(name="late", spec=BufferSpec, provider=CODE, api_version=7))
    with pytest.raises(PluginError, match="not a BackendPlugin"):
        register_backend_plugin(HISTORY)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PluginError, match=r"kind='reference'; the default of kind is the name 'fast'"):
        register_backend_plugin(BackendPlugin(name="fast", spec=BackendSpec, backend=CODE))
    assert "late" not in buffer_plugins


def test_a_plugin_that_raises_is_a_reason_and_not_a_traceback(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(wanting("missing_code", provider="NoSuchClass"))
    register(wanting("angry"))
    register(CHOOSY)

    def requests(*arguments: object) -> None:
        raise RuntimeError("not today\nand no other day")

    monkeypatch.setattr("tests.third_party.Wanting.requests", requests)
    config = load_config(["buffers=[default,missing_code,angry]", "backend=choosy"])
    with pytest.raises(ConfigError) as refused:
        plan(config)
    assert any("requests() of plugin 'angry' (registered in this process) failed: RuntimeError: not today;" in reason
               for reason in refused.value.reasons)  # fmt: skip
    assert any("loading of plugin 'missing_code'" in reason for reason in refused.value.reasons)
    assert "backend=choosy: it is choosy" in refused.value.reasons
    monkeypatch.setenv("DSPARK_TRACE_PLUGINS", "1")
    with pytest.raises(RuntimeError, match="not today"):
        plan(load_config(["buffers=[default,angry]"]))


def test_wrong_answers_are_reasons(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    register(wanting("vague"))
    monkeypatch.setattr("tests.third_party.Wanting.requests", lambda *arguments: None)
    with pytest.raises(ConfigError, match="it returned None; return a sequence of BufferRequest"):
        plan(load_config(["buffers=[default,vague]"]))
    monkeypatch.setattr("tests.third_party.Wanting.gate", lambda *arguments: True)
    with pytest.raises(ConfigError, match="it returned True; return Gate"):
        plan(load_config(["buffers=[default,vague]"]))


def test_dependent_providers_are_ordered_and_a_circle_is_refused(register: Register) -> None:
    register(wanting("late", "early", provider="Quiet"))
    register(wanting("early", provider="Quiet"))
    register(wanting("chicken", "egg", provider="Quiet"))
    register(wanting("egg", "chicken", provider="Quiet"))
    providers = plan(load_config(["buffers=[default,late,early]"])).providers
    assert providers.index("early") < providers.index("late")
    with pytest.raises(ConfigError, match="in a circle: "):
        plan(load_config(["buffers=[default,chicken,egg]"]))


def test_a_bare_source_tree_has_the_built_in_plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = {plugin.name for plugin, origin in discovery.discover().plugins if origin.builtin}
    monkeypatch.setattr(discovery, "entry_points", lambda group: ())
    assert {plugin.name for plugin, _ in discovery.discover().plugins} == installed
    assert {"kv_pools", "reference"} <= installed
    monkeypatch.setattr(discovery, "__file__", str(tmp_path / "package" / "registry" / "discovery.py"))
    with pytest.raises(
        PluginError, match="the metadata of dspark-factory is missing or outdated; install it again"
    ):
        discovery.discover()
