"""Every benchmark, one after the other, each in a process of its own: ``python -m benchmarks [--short]``."""

import subprocess
import sys

ORDER = ["enqueue", "drain", "latency", "flat", "contention", "lengths", "memory", "disk", "cpu"]


def works(name: str) -> bool:
    """Run one with this command's options; return whether it ended well."""
    return not subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]).returncode


def main() -> None:
    failed = [name for name in ORDER if not works(name)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
