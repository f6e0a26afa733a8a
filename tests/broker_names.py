"""The site, the streams and the addresses that tests of the broker speak of."""

from typing import Final

from tenure.broker.base import ClientAddress, Readers, Stream, WorkerAddress
from tenure.broker.keys import DEFAULT_PERSON

READERS: Final = Readers(("lab",), (DEFAULT_PERSON,))
CPU: Final = Stream("lab", "cpu")
GPU: Final = Stream("lab", "gpu")
OWN: Final = Stream("lab", worker_id="w1")
W1: Final = WorkerAddress("lab", "w1")
W2: Final = WorkerAddress("lab", "w2")
C1: Final = ClientAddress(DEFAULT_PERSON, "c1")
