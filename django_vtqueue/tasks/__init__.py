"""Django's Tasks on top of the queue: the decorator, signatures, results, signals, and the checks of the settings."""
