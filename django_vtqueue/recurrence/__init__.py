"""Recurring jobs: what code declares becomes rows, and what is due of these becomes jobs; any worker does both."""
