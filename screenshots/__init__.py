"""The pictures of the admin in the documentation: ``python -m screenshots`` makes them anew, from a shop at work."""
