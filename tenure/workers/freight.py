"""The agent's one porter: started at first need, shared by all slots, with an answer for each job whatever happens."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from tenure.artifacts.jobs import Ended, Problem
from tenure.errors import ArtifactError, ArtifactStoreUnreachable, TenureError
from tenure.protocol.worker_messages import Failure, FailureKind, Outcome
from tenure.workers.removal import Removal
from tenure.workers.task_folder import SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.artifacts.base import Porter
    from tenure.artifacts.jobs import Job
    from tenure.clock import Clock
    from tenure.workers.inputs import Input

    MakeJob = Callable[[int], Job]
    Then = Callable[[Ended], list[Input]]
    Say = Callable[[str], None]

_COLLECT_FAILURES: Final = MappingProxyType(
    {
        "forbidden_path": FailureKind.FORBIDDEN_PATH,
        "too_many_files": FailureKind.TOO_MANY_FILES,
        "payload_too_large": FailureKind.TOO_MANY_FILES,
    }
)
_MAX_MESSAGE: Final = 2_000
_UNFIT: Final = "unfit"
_GIVEN_UP: Final = "given_up"
_MOST_DEATHS: Final = 2
_PAUSES_MS: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 60_000)
"""Before each further try at a store that does not answer: about three minutes in all."""
NO_STORE: Final = "no_store"
_NO_STORE_WORDS: Final = (
    "no store of artifacts is known to this worker. Start the coordinator with `--artifacts ADDRESS`, or set "
    "TENURE_ARTIFACTS where the worker runs"
)


@final
class StoreAddress:
    """Where artifacts are kept: the worker's own setting, else what the coordinator has announced at the broker.

    Written by the lines to the broker, read by the main loop.
    """

    def __init__(self, own: str = "") -> None:
        self._own = own
        self._announced = ""

    @property
    def is_own(self) -> bool:
        """Whether what is announced does not matter."""
        return bool(self._own)

    @property
    def is_known(self) -> bool:
        """Whether there is one."""
        return bool(self._own or self._announced)

    def announce(self, address: str) -> None:
        """The coordinator has said so; "" when it has said nothing."""
        self._announced = address

    def __str__(self) -> str:
        """The address; "" when none is known."""
        return self._own or self._announced


@final
@dataclass(slots=True)
class _Parcel:
    make_job: MakeJob
    then: Then
    say: Say | None
    deaths: int = 0
    tries: int = 0
    due_ms: int | None = None
    cancelled: bool = False


@final
class Freight:
    """Jobs for the porter, and what is to be done when they have ended. Used by one thread.

    A job that ended with its porter is given to the next one, a few times: all jobs are safe to repeat, and hours of
    work may wait to be stored. For the same reason a job may be patient with a store that does not answer.

    Args:
        make: starts a porter for a store's address; None when this worker has none.
        address: where artifacts are kept.
        clock: how long a patient job waits.
    """

    def __init__(self, make: Callable[[str], Porter] | None, address: StoreAddress, clock: Clock) -> None:
        self._make = make
        self._address = address
        self._clock = clock
        self._porter: Porter | None = None
        self._porter_address = ""
        self._numbers = 0
        self._waiting: dict[int, _Parcel] = {}
        self._refused: list[Ended] = []

    def submit(self, make_job: MakeJob, then: Then, say: Say | None = None) -> int:
        """Begin a job; `then` is called from `read` when it has ended. Answers the job's number.

        With `say` it is tried again for some minutes while the store does not answer, and that is told there, once.
        """
        self._numbers += 1
        self._waiting[self._numbers] = _Parcel(make_job, then, say)
        self._hand_over(self._numbers, make_job)
        return self._numbers

    def cancel(self, number: int) -> None:
        """Give up a job; its end comes nevertheless."""
        parcel = self._waiting.get(number)
        if parcel is not None:
            parcel.cancelled = True
            if parcel.due_ms is not None:
                parcel.due_ms = None
                self._refuse(number, _GIVEN_UP, "it was given up while the store did not answer")
            elif self._porter is not None:
                self._porter.cancel(number)

    def read(self) -> list[Input]:
        """What follows from the jobs that have ended since; those whose pause is over begin again."""
        self._begin_the_due()
        ended, self._refused = self._refused, []
        if self._porter is not None:
            ended.extend(self._porter.ended())
        inputs: list[Input] = []
        for one in ended:
            parcel = self._waiting.get(one.number)
            if parcel is None or self._is_tried_again(one, parcel):
                continue
            del self._waiting[one.number]
            inputs.extend(parcel.then(one))
        return inputs

    @property
    def pid(self) -> int:
        """The porter's process id; 0 while there is none."""
        return self._porter.pid if self._porter is not None else 0

    def fileno(self) -> int:
        """The descriptor to watch; -1 while there is none."""
        return self._porter.fileno() if self._porter is not None else -1

    @property
    def is_waiting(self) -> bool:
        """Whether a job is on its way: `read` must be called now and then, also when no descriptor asks for it."""
        return bool(self._waiting)

    def close(self) -> None:
        """Give up everything."""
        if self._porter is not None:
            self._porter.close()
            self._porter = None

    def _hand_over(self, number: int, make_job: MakeJob) -> None:
        try:
            porter = self._ready_porter()
            if porter is None:
                self._refuse(number, NO_STORE, _NO_STORE_WORDS)
            else:
                porter.submit(make_job(number))
        except TenureError as error:
            self._refuse(number, error.code, str(error))
        except (OSError, ValueError) as error:
            self._refuse(number, _UNFIT, f"the files could not be carried: {error}")

    def _begin_the_due(self) -> None:
        now_ms = self._clock.elapsed_ms()
        for number, parcel in self._waiting.items():
            if parcel.due_ms is not None and parcel.due_ms <= now_ms:
                parcel.due_ms = None
                self._hand_over(number, parcel.make_job)

    def _is_tried_again(self, ended: Ended, parcel: _Parcel) -> bool:
        problem = ended.problem
        if problem is None or parcel.cancelled:
            return False
        if problem.code == ArtifactStoreUnreachable.code:
            return self._is_waited_for(parcel, problem)
        if problem.code != ArtifactError.code or parcel.deaths >= _MOST_DEATHS:
            return False
        parcel.deaths += 1
        self._hand_over(ended.number, parcel.make_job)
        return True

    def _is_waited_for(self, parcel: _Parcel, problem: Problem) -> bool:
        if parcel.say is None or parcel.tries >= len(_PAUSES_MS):
            return False
        if not parcel.tries:
            parcel.say(f"the store of artifacts does not answer, and is tried again: {problem.message}")
        parcel.due_ms = self._clock.elapsed_ms() + _PAUSES_MS[parcel.tries]
        parcel.tries += 1
        return True

    def _ready_porter(self) -> Porter | None:
        address = str(self._address)
        if self._make is None or not address:
            return None
        if self._porter is not None and address != self._porter_address and len(self._waiting) == 1:
            # The fleet's store has moved, and nothing is on its way to the old one.
            self.close()
        if self._porter is None:
            self._porter, self._porter_address = self._make(address), address
        return self._porter

    def _refuse(self, number: int, code: str, message: str) -> None:
        self._refused.append(Ended(number=number, problem=Problem(code=code, message=message[:4_000])))


def collect_failure(problem: Problem) -> Outcome:
    """How a task fails whose outputs could not be staged."""
    kind = _COLLECT_FAILURES.get(problem.code, FailureKind.OUTPUTS_NOT_STORED)
    return Outcome(failure=Failure(kind=kind, message=f"its outputs: {problem.message}"[:_MAX_MESSAGE]))


def clear_away(folder: Path, keep: str) -> None:
    """Remove a folder that no runner looks after, or move it to `keep`, without holding anybody up."""
    Thread(target=_clear_away, args=(folder, keep), name="tenure-clear", daemon=True).start()


def _clear_away(folder: Path, keep: str) -> None:
    if keep:
        with suppress(OSError):
            Path(keep).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.rename(keep)
            # What a person looks at later holds no secrets.
            folder = Path(keep) / SECRETS
    with suppress(OSError):
        Removal(str(folder)).finish()
