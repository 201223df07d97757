"""What a language model can do with mail, whatever framework calls it."""

from mq9.agent_tools.tools import AgentTools, ToolFailure, translated

__all__ = ["AgentTools", "ToolFailure", "translated"]
