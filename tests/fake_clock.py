"""A clock that stands still until a test moves it."""

START = 1_800_000_000_000_000  # a moment in January 2027, in microseconds


def at(seconds: float) -> int:
    """Return the instant so many seconds after the start."""
    return START + round(seconds * 1_000_000)


class FakeClock:
    def __init__(self) -> None:
        self.instant = START

    def __call__(self) -> int:
        return self.instant

    def advance(self, seconds: float) -> None:
        self.instant += round(seconds * 1_000_000)
