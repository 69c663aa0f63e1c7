"""Every benchmark, one after the other, each in a process of its own: ``python -m benchmarks [--short] [--json FILE]``.

A file that is there is written anew.
"""

import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

ORDER = ["enqueue", "drain", "latency", "flat", "contention", "lengths", "memory", "disk", "cpu", "pages", "depth"]
ORDER += ["limits", "postgresql", "leftovers", "base"]


def works(name: str) -> bool:
    """Run one with this command's options; return whether it ended well."""
    return not subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]).returncode


def main() -> None:
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--json", type=Path)
    if (path := parser.parse_known_args()[0].json) and path.exists():
        path.write_text("")
    failed = [name for name in ORDER if not works(name)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
