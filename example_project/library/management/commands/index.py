"""`manage.py index [PATH ...]`: enqueue one job for each text file below the given folders."""

from pathlib import Path

import django
from django.core.management.base import BaseCommand, CommandError

from django_vtqueue import enqueue_many
from library.files import text_files
from library.tasks import index_file


class Command(BaseCommand):
    help = "Enqueues one indexing job for each text file below the given folders; a worker (vtworker) does the work."

    def add_arguments(self, parser):
        django_package = Path(django.__file__).parent
        parser.add_argument("path", nargs="*", type=Path, default=[django_package], help="default: the Django package")

    def handle(self, **options):
        folders = [folder.resolve() for folder in options["path"]]
        for folder in folders:
            if not folder.is_dir():
                raise CommandError(f"{folder} is not a folder.")
        # One call, one transaction: thousands of jobs take a moment, and all of them are enqueued or none.
        results = enqueue_many(index_file, [((path,), {}) for folder in folders for path in text_files(folder)])
        self.stdout.write(f"{len(results):,} files enqueued. A worker indexes them: manage.py vtworker")
