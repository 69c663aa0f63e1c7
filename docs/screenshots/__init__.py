"""The pictures of the admin in the documentation, of a shop at work: ``python -m docs.screenshots`` makes them anew."""
