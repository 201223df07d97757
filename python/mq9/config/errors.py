"""Errors of a configuration, with their place."""


class ConfigError(Exception):
    """A configuration that cannot be used; the message says where, what is wrong and what to do."""


def quoted(text: object) -> str:
    """A name or value for a message, in quotes and not longer than a line."""
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:70]}...{shown[-1]}"
