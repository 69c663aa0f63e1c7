#!/usr/bin/env python
"""The test project's manage.py; process tests start their workers with it."""

import gc
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder: it has a package named queue
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    # To look for garbage while all that stays is imported takes a sixth of the time of a start.
    gc.disable()
    import django
    from django.core.management import execute_from_command_line

    django.setup()
    gc.freeze()
    gc.enable()
    execute_from_command_line()
