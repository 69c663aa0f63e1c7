"""Run the measurement on the database of a project; see command."""

import sys

import django


def main() -> None:
    django.setup()
    from .command import Command

    Command().run_from_argv(["python -m", "benchmarks.own", *sys.argv[1:]])


if __name__ == "__main__":
    main()
