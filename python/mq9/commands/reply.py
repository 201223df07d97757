"""Replies: compact JSON, `error` first, the same keys whether all went well or not."""

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    """What every reply says; an empty `error` is success."""

    model_config = ConfigDict(frozen=True)

    error: str = ""

    def json_bytes(self) -> bytes:
        """The reply as it is sent: fields that are None are left out."""
        return self.model_dump_json(exclude_none=True).encode()
