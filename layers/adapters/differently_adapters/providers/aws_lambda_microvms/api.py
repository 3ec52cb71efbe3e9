"""The calls of the Lambda MicroVM API that we use, each sent once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.errors import NotFound, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...aws import Signer, refusal
from ...http import Call, Deadlines, Http, segment
from ...pages import Page, every_item
from .config import LambdaMicrovmConfig
from .wire import GONE, Image, ImagePage, Microvm, MicrovmPage, Token, read

VERSION: Final = "/2025-09-09"
CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 50
TOKEN_MINUTES: Final = 30
PROXY_TOKEN: Final = "X-aws-proxy-auth"


class Api:
    """`untold` is in no message."""

    def __init__(
        self, config: LambdaMicrovmConfig, credential: Mapping[str, str], clock: Clock, untold: Collection[str] = ()
    ) -> None:
        self._image = config.image_arn
        self.http = Http(
            config.api(), clock, secrets=untold, rules=config.rules(), explain=refusal,
            sign=Signer(
                "lambda", config.region, credential, role_arn=config.role_arn, external_id=config.external_id,
                on_token=lambda token: self.http.secrets.add(token),
            ),
        )  # fmt: skip

    def run(self, body: dict[str, JsonValue], seconds: float, secrets: Collection[str]) -> Microvm:
        """A repetition under the same client token gives the first MicroVM, also one that has ended."""
        return read(Microvm, self._told("POST", "/microvms", body=body, seconds=seconds, secrets=secrets))

    def look(self, ref: str) -> Microvm:
        """As AWS sees it, also when it has ended."""
        found = read(Microvm, self._told("GET", f"/microvms/{segment(ref)}"))
        if found.microvm_id != ref:
            raise ProviderUnavailable("AWS answered about another MicroVM than the one asked for.", settled=True)
        return found

    def get(self, ref: str) -> Microvm:
        """Raises `NotFound` also for one that has ended, or is of another image."""
        found = self.look(ref)
        if found.state == GONE or found.image_arn != self._image:
            raise NotFound("There is no such MicroVM of this pool's image.")
        return found

    def all(self) -> list[Microvm]:
        """Every MicroVM of the image that has not ended; raises when a page is missing or the pages do not end."""
        found = every_item(self._page, lambda item: item.microvm_id)
        return [item for item in found if item.image_arn == self._image and item.state != GONE]

    def _page(self, cursor: str | None) -> Page[Microvm]:
        query = {"imageIdentifier": self._image, "maxResults": str(PAGE_SIZE)}
        told = read(MicrovmPage, self._told("GET", "/microvms", query | ({"nextToken": cursor} if cursor else {})))
        return Page(told.items, told.next_token)

    def suspend(self, ref: str) -> None:
        self._done("POST", f"/microvms/{segment(ref)}/suspend")

    def resume(self, ref: str) -> None:
        self._done("POST", f"/microvms/{segment(ref)}/resume")

    def terminate(self, ref: str) -> None:
        """Missing is success."""
        try:
            self._done("DELETE", f"/microvms/{segment(ref)}")
        except NotFound:
            return

    def token(self, ref: str, port: int) -> str:
        """Lets its bearer in to one port of one MicroVM for half an hour."""
        body: dict[str, JsonValue] = {"expirationInMinutes": TOKEN_MINUTES, "allowedPorts": [{"port": port}]}
        told = read(Token, self._told("POST", f"/microvms/{segment(ref)}/auth-token", body=body, mutates=False))
        token = {name.lower(): value for name, value in told.auth_token.items()}.get(PROXY_TOKEN.lower())
        if not token:
            raise ProviderUnavailable("AWS gave no token for the MicroVM's endpoint.", settled=True)
        return token

    def image(self) -> Image:
        return read(Image, self._told("GET", f"/microvm-images/{segment(self._image)}"))

    def images(self) -> list[Image]:
        """Of the account, as far as the first pages tell: for somebody who chooses one."""
        return read(ImagePage, self._told("GET", "/microvm-images", {"maxResults": str(PAGE_SIZE)})).items

    def _done(self, method: str, path: str) -> None:
        """Of a call whose answer holds nothing."""
        self.http.answer(Call(method, VERSION + path, Deadlines(CALL_SECONDS)))

    def _told(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: dict[str, JsonValue] | None = None,
        seconds: float = CALL_SECONDS,
        secrets: Collection[str] = (),
        mutates: bool | None = None,
    ) -> JsonValue:
        call = Call(
            method, VERSION + path, Deadlines(seconds), query=query or {}, body=body, secrets=secrets, mutates=mutates
        )
        return self.http.json(call)
