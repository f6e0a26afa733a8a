"""The agent: the process that talks to the broker, keeps heartbeats, and runs no user code.

Its decisions are the core's (`claims.py`), its work is a `Shift`. One agent is one worker: build it from options and a
factory of broker connections, call `run`, and `request_drain` from the handlers of SIGTERM and SIGINT.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from tenure.errors import BrokerUnreachable
from tenure.workers.identity import assume
from tenure.workers.linux import adopt_orphans, forbid_inspection
from tenure.workers.shift import Shift, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.broker.base import WorkerBroker
    from tenure.clock import Clock, Entropy
    from tenure.workers.options import WorkerOptions
    from tenure.workers.shift import Summary

_LOG: Final = logging.getLogger(__name__)


@final
class Agent:
    """One worker's agent.

    Args:
        options: how the worker runs.
        connect: makes a connection for a worker id; called once per line to the broker, and again after a failure.
        clock: time.
        entropy: nonces and jitter.
    """

    def __init__(
        self, options: WorkerOptions, connect: Callable[[str], WorkerBroker], clock: Clock, entropy: Entropy
    ) -> None:
        self._options = options
        self._connect = connect
        self._clock = clock
        self._entropy = entropy
        self._drains_asked = 0
        self._shift: Shift | None = None

    def request_drain(self) -> None:
        """End the worker: the first call lets what runs finish, a second one ends it. Safe in a signal handler."""
        self._drains_asked += 1
        if self._shift is not None:
            self._shift.ask_to_drain(self._drains_asked)

    def run(self) -> Summary:
        """Work until drained; answers what was done.

        Raises:
            InvalidSettings: the worker's id or folder cannot be used.
            WorkerBusy: another agent of this worker id runs on this host.
            BrokerRefused: the broker does not let this worker in.
        """
        identity = assume(self._options.state_dir, self._options.worker_id, self._clock, self._entropy)
        try:
            self._try_broker(identity.worker_id)
            forbid_inspection()
            if self._options.adopts:
                adopt_orphans()
            surroundings = Surroundings(
                self._options, lambda: self._connect(identity.worker_id), self._clock, self._entropy
            )
            self._shift = Shift(identity, surroundings)
            if self._drains_asked:
                self._shift.ask_to_drain(self._drains_asked)
            return self._shift.work()
        finally:
            self._shift = None
            identity.release()

    def _try_broker(self, worker_id: str) -> None:
        """A wrong password is worth an error at once; a broker that is not there yet is waited for."""
        broker = self._connect(worker_id)
        try:
            broker.marker()
        except BrokerUnreachable as error:
            _LOG.warning("%s; the worker waits for it", error)
        finally:
            broker.close()
