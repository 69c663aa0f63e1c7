"""Make the pictures of the documentation, or with ``--every FOLDER`` pictures of every page, in all looks."""

import os
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

import django

from .look import MADE_FROM, look

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent / "pictures"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=Path, metavar="FOLDER", help="pictures of every page, to be looked at")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtq-") as folder:
        os.environ |= {"SCREENSHOTS_FOLDER": folder, "DJANGO_SETTINGS_MODULE": "docs.screenshots.settings"}
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent.parent)])  # the app is called "shop"
        sys.path.insert(0, str(HERE))
        django.setup()
        from .camera import Camera
        from .day import spend
        from .processes import Processes

        processes = Processes()
        try:
            spend(processes)
            with Camera(processes.start_site()) as camera:
                if given.every:
                    camera.take_every(given.every)
                else:
                    camera.take(PICTURES)
                    MADE_FROM.write_text(look())
        finally:
            processes.end()


if __name__ == "__main__":
    main()
