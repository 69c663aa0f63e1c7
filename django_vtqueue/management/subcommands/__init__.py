"""The subcommands of ``manage.py vtqueue``, one file each, named as on the command line."""
