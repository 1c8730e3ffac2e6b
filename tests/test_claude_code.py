"""examples/claude-code: files that a host reads as they are, and that name what the server has."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
import yaml

from tests.agents import TOOLS

FOLDER = Path(__file__).parents[1] / "examples" / "claude-code"
AGENTS = sorted((FOLDER / ".claude" / "agents").glob("*.md"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
OF_HOST = {"Read", "Write", "Glob"}


def agent(path):
    """The front matter and the text of an agent's definition."""
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), body


@pytest.mark.parametrize(("name", "kind"), [(".mcp.json", PurePosixPath), ("windows.mcp.json", PureWindowsPath)])
def test_the_server_is_started_by_an_absolute_interpreter(name, kind):
    """A host activates no environment: the interpreter is that of one, by its whole path."""
    ((server, given),) = json.loads((FOLDER / name).read_text(encoding="utf-8"))["mcpServers"].items()
    assert server == "memory"
    command = kind(given["command"])
    assert command.is_absolute()
    assert ".venv" in command.parts
    assert command.stem == "python"
    assert given["args"] == ["-P", "-m", "retriever", "mcp"]  # -P: nothing is imported from the project
    assert given["env"].keys() <= {"RETRIEVER_NAMESPACE", "VALKEY_URL"}


def test_the_environment_is_one_that_the_command_reads():
    """No variable is misspelt, in either file."""
    pytest.importorskip("typer")
    from retriever.mcp_cli import mcp

    read = {each.__metadata__[0].envvar for each in mcp.__annotations__.values()}
    for path in FOLDER.glob("*mcp.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["mcpServers"]["memory"]["env"].keys() <= read


def test_there_are_three_agents():
    """Recall, sessions, documents."""
    assert [path.stem for path in AGENTS] == ["document-to-memory", "recall", "session-to-memory"]


@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.stem)
def test_an_agent_is_defined(path):
    """Its name is its file's; it has no tool but those it needs, and each is one that there is; a yes is a person's."""
    head, body = agent(path)
    assert head["name"] == path.stem
    assert len(head["description"]) > 60
    tools = head["tools"].split(", ")
    ours = {tool.removeprefix("mcp__memory__") for tool in tools if tool.startswith("mcp__memory__")}
    assert ours <= set(TOOLS)
    assert set(tools) - {f"mcp__memory__{tool}" for tool in ours} <= OF_HOST
    assert not ours & {"run_forgetting_batch", "delete_document", "rebuild_index"}
    said = " ".join(body.split())
    for what in ("person's yes", "importance", "knowledge_type", "forgetting run", "never an instruction"):
        assert what in said
    assert set(re.findall(r"`(\w+)`(?= with)", body)) <= ours
    assert {name for name in re.findall(r"`(\w+)`", body) if name in TOOLS} <= ours


def test_sessions_are_put_in_by_a_small_model_and_by_name():
    """One named session at a time, as an experiment, under its own key."""
    head, body = agent(FOLDER / ".claude" / "agents" / "session-to-memory.md")
    assert head["model"] == "haiku"
    assert "never unasked" in head["description"]
    assert '"knowledge_type": "experiment"' in body
    assert 'source_key="session:<id>"' in body


def test_recalling_changes_nothing():
    """The agent that reads has tools that read."""
    head, _ = agent(FOLDER / ".claude" / "agents" / "recall.md")
    assert not set(head["tools"].split(", ")) & {"Write", "mcp__memory__ingest", "mcp__memory__set_chunk_tags"}


def test_the_page_is_whole():
    """Three steps, a conversation, the rule; its JSON is JSON, and the tools and files that it names are there."""
    steps = README.partition("## Set up\n")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d)\.", steps, re.MULTILINE) == ["1", "2", "3"]
    assert "## A first conversation" in README
    assert "## A person's yes" in README
    (settings,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    named = [rule for rules in json.loads(settings)["permissions"].values() for rule in rules]
    assert {rule.removeprefix("mcp__memory__") for rule in named} <= set(TOOLS)
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (FOLDER / link).exists(), link
    for name in re.findall(r"`([\w.]*mcp\.json)`", README):
        assert (FOLDER / name).exists()
