"""OpenTelemetry: a worker's own statements are no spans; those of jobs are."""

from pathlib import Path
from typing import Any

from .projects import Client

SETTINGS = """
from opentelemetry import trace
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans", "a") as file:
            for span in spans:
                print(" ".join(span.attributes["db.statement"].split()), file=file)

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
PsycopgInstrumentor().instrument()

DATABASES = {{"default": {database!r}}}
"""
TASKS = """
import time
from django.db import connection
from django_vtqueue import task

@task
def look():
    time.sleep(2)  # the worker looks for others meanwhile
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'of a job'")
"""


def test_only_jobs_make_spans(tmp_path: Path, own_database: dict[str, Any]) -> None:
    """A worker that looks for jobs makes no span a look; the statements of a task are spans as everywhere."""
    project = Client(tmp_path, SETTINGS.format(database=own_database))
    project.write("shop/tasks.py", TASKS)
    project.manage("migrate", "-v0")
    project.python("from shop.tasks import look; look.enqueue()")
    (tmp_path / "spans").unlink()
    said = project.manage("vtworker", "--drain", "--threads", "2")
    assert said.startswith("exit 0"), said
    spans = (tmp_path / "spans").read_text().splitlines()
    assert "SELECT 'of a job'" in spans
    assert len([span for span in spans if "vtqueue_" in span]) < 10, spans
