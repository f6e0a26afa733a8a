"""The agent: the process that talks to the broker, keeps heartbeats, and runs no user code.

Its decisions are the core's (`claims.py`), its work is a `Shift`. One agent is one worker: build it from options and a
factory of broker connections, call `run`, and `request_drain` from the handlers of SIGTERM and SIGINT.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol, final

from tenure.broker.base import EntryId, Stream, StreamEntry
from tenure.errors import BrokerRefused, BrokerUnreachable
from tenure.processes.linux import adopt_orphans, forbid_inspection
from tenure.workers.host_secrets import known_secrets
from tenure.workers.identity import assume
from tenure.workers.shift import Shift, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.artifacts.base import Porter
    from tenure.broker.base import WorkerBroker
    from tenure.clock import Clock, Entropy
    from tenure.workers.identity import Identity
    from tenure.workers.options import WorkerOptions
    from tenure.workers.shift import Summary

_LOG: Final = logging.getLogger(__name__)


class Working(Protocol):
    """An agent at work: `shift.Shift` runs tasks itself, `launch_shift.LaunchShift` has a launcher start executors."""

    def ask_to_drain(self, times: int) -> None:
        """End the work: once lets what runs finish, twice ends it. Safe in a signal handler."""
        ...

    def work(self) -> Summary:
        """Work until drained."""
        ...


@final
class Agent:
    """One worker's agent.

    Args:
        options: how the worker runs.
        connect: makes a connection for a worker id; called once per line to the broker, and again after a failure.
        clock: time.
        entropy: nonces and jitter.
        porter: starts a porter for a store's address; None: this worker's tasks have no artifacts.
        begin: what the agent does once it knows who it is.
    """

    def __init__(
        self,
        options: WorkerOptions,
        connect: Callable[[str], WorkerBroker],
        clock: Clock,
        entropy: Entropy,
        porter: Callable[[str], Porter] | None = None,
        begin: Callable[[Identity, Surroundings], Working] = Shift,
    ) -> None:
        self._options = options
        self._connect = connect
        self._clock = clock
        self._entropy = entropy
        self._porter = porter
        self._begin = begin
        self._drains_asked = 0
        self._shift: Working | None = None

    def request_drain(self) -> None:
        """End the worker: the first call lets what runs finish, a second one ends it. Safe in a signal handler."""
        self._drains_asked += 1
        if self._shift is not None:
            self._shift.ask_to_drain(self._drains_asked)

    def run(self) -> Summary:
        """Work until drained; answers what was done.

        Raises:
            InvalidSettings: the worker's id or folder cannot be used, or its secrets can be read by others.
            WorkerBusy: another agent of this worker id runs on this host.
            BrokerRefused: the broker does not let this worker in.
        """
        secrets = known_secrets(self._options.secrets_dir)
        options = self._options
        identity = assume(options.state_dir, options.worker_id, self._clock, self._entropy, site=options.site)
        try:
            self._shift = self._started(identity, secrets)
            if self._drains_asked:
                self._shift.ask_to_drain(self._drains_asked)
            return self._shift.work()
        finally:
            self._shift = None
            identity.release()

    def _started(self, identity: Identity, secrets: frozenset[str]) -> Working:
        """A shift that has not begun to work; its number is free again when there is none."""
        with ExitStack() as refused:
            refused.callback(identity.never_began)
            self._try_broker(identity.worker_id)
            forbid_inspection()
            if self._options.adopts:
                adopt_orphans()
            surroundings = Surroundings(
                self._options,
                lambda: self._connect(identity.worker_id),
                self._clock,
                self._entropy,
                self._porter,
                secrets,
            )
            shift = self._begin(identity, surroundings)
            refused.pop_all()
        return shift

    def _try_capability(self, broker: WorkerBroker, capability: str) -> None:
        """One that the site was not granted would have every read refused, also of those that it was."""
        site = self._options.site
        try:
            broker.look(StreamEntry(Stream(site, capability), EntryId(0, 1)))
        except BrokerRefused as error:
            raise BrokerRefused(
                f"the credential of site {site} is not good for work of capability {capability}: {error.message}",
                f"See `tenure sites show {site}`, and name with --capability what it was granted",
            ) from error

    def _try_broker(self, worker_id: str) -> None:
        """A wrong password or capability is worth an error at once; a broker that is not there yet is waited for."""
        broker = self._connect(worker_id)
        try:
            broker.marker()
            for capability in self._options.capabilities:
                self._try_capability(broker, capability)
        except BrokerUnreachable as error:
            _LOG.warning("%s; the worker waits for it", error)
        finally:
            broker.close()
