"""An agent as tests play it: a client of the SDK's own, whose tools are called by their names."""

from __future__ import annotations

from contextlib import asynccontextmanager

from mcp import Client

TOOLS = """
    embed hybrid_search rerank ingest set_chunk_tags find_by_tag get_document_chunks delete_document update_index
    rebuild_index run_forgetting_batch index_health get_system_stats
""".split()


class Agent:
    """Calls tools: ``await agent.embed(text="x")`` is the tool's answer, ``agent.refused("embed")`` its error."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, tool):
        async def call(**arguments):
            result = await self.client.call_tool(tool, arguments)
            assert not result.is_error, result.content[0].text
            return result.structured_content

        return call

    async def refused(self, tool, **arguments):
        """The error that an agent reads."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        (content,) = result.content
        return content.text


@asynccontextmanager
async def agent_of(server, mode="auto"):
    """An agent at a server: one in this process, a command to start, or a URL. mode: which revision it begins with."""
    async with Client(server, mode=mode) as client:
        yield Agent(client)
