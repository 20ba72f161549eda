"""The virtual clock: the only time that a recorded engine sees."""

import time


class VirtualClock:
    """Stands for the wall clock and the monotonic clock alike; it moves only when it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    def install(self) -> None:
        """Puts this clock in place of `time.time` and `time.monotonic`, for the whole process."""
        time.time = self.read
        time.monotonic = self.read
