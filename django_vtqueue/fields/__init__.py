"""The fields of a moment and of JSON: stored as the queue's SQL needs them, in Python and in queries as Django's."""

from .json_text import JSONTextField, StoredText, text_of
from .moments import InstantField, MomentManager

__all__ = ["InstantField", "JSONTextField", "MomentManager", "StoredText", "text_of"]
