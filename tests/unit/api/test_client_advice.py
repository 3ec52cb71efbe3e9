"""An error code that is new here is explained to users of the client and the command line too."""

from __future__ import annotations

from differently._advice import ADVICE
from differently_core.errors import REACTIONS


def test_the_client_says_what_to_do_about_every_code() -> None:
    """If not: add a sentence to clients/python/differently/_advice.py, which tells what helps."""
    public = {reaction.public for reaction in REACTIONS.values()}
    assert public - set(ADVICE) == set()
    assert set(ADVICE) - public == set()
