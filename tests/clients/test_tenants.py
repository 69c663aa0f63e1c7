"""django-tenants: each job begins in the public schema, as each request does."""

from pathlib import Path
from typing import Any

from .projects import Client

SETTINGS = """
DATABASES = {{"default": {{**{database!r}, "ENGINE": "django_tenants.postgresql_backend"}}}}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
SHARED_APPS = ["django_tenants", *INSTALLED_APPS, "customers"]
TENANT_APPS = ["django.contrib.contenttypes"]
INSTALLED_APPS = SHARED_APPS
TENANT_MODEL, TENANT_DOMAIN_MODEL = "customers.Customer", "customers.Domain"
"""
MODELS = """
from django_tenants.models import DomainMixin, TenantMixin

class Customer(TenantMixin):
    auto_create_schema = True

class Domain(DomainMixin):
    pass
"""
TASKS = """
from django.db import connection
from django_tenants.utils import schema_context
from django_vtqueue import task

@task
def switch():
    connection.set_schema("ada")
    print("switched", where(), flush=True)

@task
def look():
    print("looked", connection.schema_name, where(), flush=True)

@task
def publish():
    with schema_context("ada"):
        look.enqueue()

def where():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return cursor.fetchone()[0]
"""


def test_a_job_begins_in_the_public_schema(tmp_path: Path, own_database: dict[str, Any]) -> None:
    """``set_schema`` of a job does not hold for the next one of its thread; and a tenant's code can enqueue."""
    project = Client(tmp_path, SETTINGS.format(database=own_database))
    project.write("customers/__init__.py", "")
    project.write("customers/models.py", MODELS)
    project.write("customers/migrations/__init__.py", "")
    project.write("shop/tasks.py", TASKS)
    for command in ("makemigrations customers -v0", "migrate_schemas --shared -v0"):
        assert (said := project.manage(*command.split())).startswith("exit 0"), said
    said = project.python("""
        from customers.models import Customer
        from shop.tasks import look, publish, switch
        Customer.objects.create(schema_name="public")
        Customer.objects.create(schema_name="ada")
        for task in (switch, look, publish):
            task.enqueue()
    """)
    assert said.startswith("exit 0"), said
    said = project.manage("vtworker", "--drain", "--threads", "1")
    assert [line for line in said.splitlines() if line.startswith(("switched", "looked"))] == [
        "switched ada",
        "looked public public",
        "looked public public",
    ], said
