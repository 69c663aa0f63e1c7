"""What your own database allows: ``DJANGO_SETTINGS_MODULE=mysite.settings python -m benchmarks.own``."""
