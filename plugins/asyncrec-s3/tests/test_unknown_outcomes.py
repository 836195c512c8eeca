"""Where an answer is lost and the store does not say, either: the error is that of what was asked, not of the look."""

from __future__ import annotations

from typing import Any

import pytest
from s3_opening import Open

from asyncrec.errors import TransientStorageError

pytestmark = pytest.mark.anyio


async def test_the_error_is_that_of_the_put_and_its_note_has_that_of_the_look(open_impatient: Open, proxy: Any) -> None:
    async with open_impatient() as storage:
        proxy.plan = lambda request: {"PutObject": "500-after", "HeadObject": "403"}.get(request.operation)
        with pytest.raises(TransientStorageError) as caught:
            await storage.put("x", b"some bytes")
    (note,) = [each for each in caught.value.__notes__ if "whether it was published is unknown" in each]
    assert "403" in note
