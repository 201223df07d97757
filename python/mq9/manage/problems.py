"""Errors as `application/problem+json` (RFC 9457)."""

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818
    """A request that is not carried out; the text is for its sender."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, **more: object
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}
        self.more = more

    def response(self) -> JSONResponse:
        """The answer."""
        document: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": str(self),
            **self.more,
        }
        return JSONResponse(
            document, status_code=self.status, headers=self.headers, media_type=MEDIA_TYPE
        )
