"""The engine for SQLite: each statement whole, with the reason for its shape beside it."""
