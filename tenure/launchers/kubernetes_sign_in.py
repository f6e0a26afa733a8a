"""Signing in to a cluster within a time: the client may run a program for it, as clouds have one, and waits for ever.

Only what is asked while a worker runs is bounded. At its start somebody may be asked for a password.
"""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class SignIn:
    """The client's own way to renew its token before each request, by a thread that can be left behind.

    One at a time: while it does not come back, each request waits for it, and fails when its time is over.
    """

    def __init__(self, renew: Callable[[Any], None], timeout_s: float) -> None:
        self._renew = renew
        self._timeout_s = timeout_s
        self._thread: Thread | None = None
        self._failure: Exception | None = None

    def __call__(self, settings: Any) -> None:  # noqa: ANN401 - the client's own, untyped
        """Renew the token where that is due. Raises TimeoutError, and whatever the client does."""
        if self._thread is None:
            self._failure = None
            self._thread = Thread(target=self._run, args=(settings,), name="tenure-sign-in", daemon=True)
            self._thread.start()
        self._thread.join(self._timeout_s)
        if self._thread.is_alive():
            raise TimeoutError("the program that signs in to the cluster does not answer")
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def _run(self, settings: Any) -> None:  # noqa: ANN401 - same
        try:
            self._renew(settings)
        except Exception as error:  # noqa: BLE001 - raised to who asked
            self._failure = error
        finally:
            # With a new token the client puts its own way back into its settings.
            settings.refresh_api_key_hook = self
