"""An MCP server: models use mailboxes and the registry as tools. Needs the extra `mcp`."""
