"""Plain values and arithmetic: a job, its states and settlements, time, chance, texts. No database, no settings."""
