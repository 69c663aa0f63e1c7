"""A load that any version of the package can run: one task without options; see ``benchmarks/base.py``."""
