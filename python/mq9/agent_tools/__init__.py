"""The tools with which a language model uses mail, whatever framework calls them."""

from mq9.agent_tools.tools import AgentTools, ToolFailure, translated

__all__ = ["AgentTools", "ToolFailure", "translated"]
