"""Ten steps with a checkpoint after each, for the form `folder`: all that docs/task_folder.md asks of a program.

It adds up squares. Needs nothing but Python.
"""

import json
import time
from pathlib import Path


def tell(**fields: object) -> None:
    """Add a line to progress.jsonl. One write per line, and always at the end of the file."""
    with Path("progress.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(fields) + "\n")


def replace(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def main() -> None:
    """Begin, or go on where an earlier attempt has come to."""
    task = json.loads(Path("task.json").read_text(encoding="utf-8"))
    parameters = task["parameters"] or {}
    steps, pause_s = parameters.get("steps", 10), parameters.get("pause_ms", 0) / 1000

    table, resumed_from = "", None
    if task["checkpoint"]:
        resumed_from = task["checkpoint"]["name"]
        table = Path(task["checkpoint"]["path"]).read_text(encoding="utf-8")
    done, total = map(int, table.splitlines()[-1].split(",")) if table else (0, 0)
    print(f"attempt {task['attempt']} starts at step {done + 1}", flush=True)

    for step in range(done + 1, steps + 1):
        time.sleep(pause_s)
        total += step * step
        table += f"{step},{total}\n"
        replace(Path("checkpoint", f"step-{step}"), table)
        tell(fraction=step / steps, message=f"step {step}", metrics={"total": total}, checkpoint=f"step-{step}")

    replace(Path("outputs", "table.csv"), "step,total\n" + table)
    result = {"total": total, "started_at": done + 1, "resumed_from": resumed_from}
    replace(Path("result.json"), json.dumps(result))


if __name__ == "__main__":
    main()
