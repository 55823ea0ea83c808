"""The server of the Model Context Protocol, through the official client."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters

from tests.integrations.conftest import LONG, QUERY
from textnuggets.integrations.mcp import make_server


def ask(server, **arguments):
    async def call():
        async with Client(server) as client:
            tools = await client.list_tools()
            return tools.tools, await client.call_tool("search", arguments)

    return asyncio.run(call())


def test_the_tool_returns_documents_with_the_passages_that_match(index):
    tools, answer = ask(make_server(index), query=QUERY, k=3)
    assert [tool.name for tool in tools] == ["search"]
    assert tools[0].annotations.read_only_hint
    documents = answer.structured_content["result"]
    assert documents[0]["id"] == "rain"
    assert documents[0]["metadata"] == {"year": 1871}
    passages = {found["id"]: found["passages"] for found in documents}
    assert all(item["text"] == LONG[item["start"] : item["end"]] for item in passages["long"])


def test_filters_reach_the_index_and_errors_the_assistant(index):
    _, answer = ask(make_server(index), query=QUERY, filter={"year": 1902})
    assert [found["id"] for found in answer.structured_content["result"]] == ["letter"]
    _, answer = ask(make_server(index), query=" ")
    assert answer.is_error
    assert "the query is empty" in answer.content[0].text


def test_the_command_serves_on_standard_input_and_output(index, monkeypatch):
    index.close()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = StdioServerParameters(command=sys.executable, args=["-m", "textnuggets", "mcp", index.place])
    _, answer = ask(command, query=QUERY, k=1)
    assert [found["id"] for found in answer.structured_content["result"]] == ["rain"]


def test_a_missing_index_is_one_line(run, tmp_path):
    result = run("mcp", str(tmp_path / "nothing"))
    assert result.returncode == 2
    assert "nothing" in result.stderr
