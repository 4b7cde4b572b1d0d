"""A request to end, made by a signal: the training notes it, finishes its step and leaves a checkpoint.

Slurm sends SIGTERM to what it ends, be it cancelled, preempted or at its time limit, and the signal that it was asked
to send some time before the limit. It may send them to every process of a job, and more than once.
"""

import contextlib
import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from balanced_aggregation.errors import Interrupted

if TYPE_CHECKING:
    from balanced_aggregation.training.world import World

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Interruption:
    """Notes the signals while it is entered; nothing else happens, however many come.

    A process that has got one is about to end, so it ignores further ones from then on, to its very end.
    """

    def __init__(self):
        self.signal: str | None = None
        """The name of the signal that came; SIGTERM if several did, since it is the more urgent."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.signal else before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None and os.environ.get("RANK", "0") == "0":
            text = f"{signal.Signals(number).name}: the training ends after the step under way\n"
            with contextlib.suppress(OSError):
                os.write(2, text.encode())  # not by `print`, which may be at work at this very moment
        self.signal = "SIGTERM" if self.signal == "SIGTERM" else signal.Signals(number).name

    def agreed(self, world: "World") -> str | None:
        """The signal that any process of a training has got, the same for all of them, which all must ask."""
        names = {name for name in world.gather(self.signal) if name}
        return "SIGTERM" if "SIGTERM" in names else min(names, default=None)

    def pause(self, seconds: float) -> None:
        """Wait before a training has begun.

        Raises:
            Interrupted: a signal has come.
        """
        time.sleep(seconds)
        if self.signal:
            raise Interrupted(f"{self.signal}: stopped before the training had begun", self.signal)
