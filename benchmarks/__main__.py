"""Every benchmark, one after the other, each in a process of its own: ``python -m benchmarks [--short]``."""

import subprocess
import sys

ORDER = ["enqueue", "drain", "latency", "flat", "contention", "lengths", "memory", "disk", "cpu"]


def main() -> None:
    failed = [
        name for name in ORDER if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]).returncode
    ]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
