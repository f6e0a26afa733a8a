"""Ten steps with a checkpoint after each, for the form `lines`: one line of JSON in, lines of JSON out, no files."""

import json
import sys
import time


def tell(**fields: object) -> None:
    """Print a line, and have it leave at once."""
    print(json.dumps(fields), flush=True)


def main() -> None:
    """Begin, or go on where an earlier attempt has come to."""
    task = json.loads(sys.stdin.readline())
    parameters = task["parameters"] or {}
    steps, pause_s = parameters.get("steps", 10), parameters.get("pause_ms", 0) / 1000
    checkpoint = task["checkpoint"]
    done, total = checkpoint["state"] if checkpoint else (0, 0)
    started_at = done + 1
    tell(log=f"attempt {task['attempt']} starts at step {started_at}")

    for step in range(started_at, steps + 1):
        time.sleep(pause_s)
        total += step * step
        tell(fraction=step / steps, message=f"step {step}", checkpoint=f"step-{step}", state=[step, total])

    resumed_from = checkpoint["name"] if checkpoint else None
    tell(result={"total": total, "started_at": started_at, "resumed_from": resumed_from})


if __name__ == "__main__":
    main()
