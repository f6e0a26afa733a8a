"""What a program tells while it runs, from lines to inputs of the core, to its log, and to its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.workers.inputs import ProgressMade
from tenure.workers.progress_lines import read_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.workers.inputs import Input
    from tenure.workers.log_feed import LogFeed
    from tenure.workers.progress_lines import ProgramLine
    from tenure.workers.saves import Saves
    from tenure.workers.workplace import Workplace

_RESULT: Final = '"result"'


@final
class ProgramVoice:
    """The voice of one attempt's program. What a line does not say stays as an earlier one said it."""

    def __init__(self, place: Workplace, form: str, feed: LogFeed, saves: Saves) -> None:
        self._place = place
        self._form = form
        self._feed = feed
        self._saves = saves
        self._progress = (0, "", "")
        self._has_complained = False
        self.result: str | None = None
        """The JSON text of the last result that was told."""
        self.unread = ""
        """What was wrong with the last line that looked like one with a result, and could not be read."""

    def told(self, lines: Sequence[str]) -> list[Input]:
        """Take these lines; of several that say how far the program is, the core is told what they say together."""
        has_progress = False
        for text in lines:
            if text.strip():
                line = read_line(text, form=self._form)
                has_progress = has_progress or line.has_progress
                self._take(line)
                if line.problem and line.result is None and _RESULT in text:
                    self.unread = line.problem
        if not has_progress:
            return []
        return [ProgressMade(self._place.slot, self._place.call, *self._progress)]

    def _take(self, line: ProgramLine) -> None:
        fraction_ppm, message, metrics = self._progress
        self._progress = (
            fraction_ppm if line.fraction_ppm is None else line.fraction_ppm,
            message if line.message is None else line.message,
            metrics if line.metrics is None else line.metrics,
        )
        if line.result is not None:
            self.result = line.result
        if line.log:
            self._feed.say(line.log, stream=1)
        if line.checkpoint:
            self._saves.save(line.checkpoint, line.state)
        if line.problem and not self._has_complained:
            self._has_complained = True
            self._feed.say(f"a line of the program was left out, or a part of it: {line.problem}. Others may be, too")
