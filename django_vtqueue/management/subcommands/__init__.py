"""The subcommands of ``manage.py vtqueue``."""
