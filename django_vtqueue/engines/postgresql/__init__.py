"""The engine of PostgreSQL 14 and later, with psycopg 3."""
