"""Trees that grow faster than anybody looks at them: they are ended, whoever had no time for them before."""

import json
import subprocess
import sys

import pytest

CHAINS = 20
LIFE_S = 20
"""A chain gives up by itself after this time, so that a flaw here leaves nothing behind."""
BY_THEIR_RUNNER = """
left = False
while not left:
    kill_descendants()
    _, left = reap()
"""
BY_THE_AGENT_OF_A_KILLED_RUNNER = """
while not end_orphans(()):
    pass
"""
SCRIPT = f"""
import json, os, time
from tenure.processes.linux import adopt_orphans
from tenure.processes.trees import children, kill_descendants, reap
from tenure.workers.orphans import end_orphans

def fork_without_end(until):
    os.setsid()
    while time.monotonic() < until:
        if os.fork() != 0:
            os._exit(0)
        os.sched_yield()
    os._exit(0)

adopt_orphans()
began = time.monotonic()
for _ in range({CHAINS}):
    if os.fork() == 0:
        fork_without_end(began + {LIFE_S})
while len(children(os.getpid())) < 1_500:
    os.sched_yield()
asked = time.monotonic()
ENDING
print(json.dumps({{"took_s": time.monotonic() - asked, "at_s": time.monotonic() - began}}))
"""


@pytest.mark.parametrize("ending", [BY_THEIR_RUNNER, BY_THE_AGENT_OF_A_KILLED_RUNNER], ids=["runner", "agent"])
def test_chains_that_fork_without_end_are_ended_although_thousands_have_ended_and_nobody_collected_them(
    ending: str,
) -> None:
    script = SCRIPT.replace("ENDING", ending)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=True)
    told = json.loads(done.stdout)
    assert told["took_s"] < LIFE_S / 4, told
    assert told["at_s"] < LIFE_S, "they were ended before they would have ended by themselves"
