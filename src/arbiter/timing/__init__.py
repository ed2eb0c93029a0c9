"""Calendars, clocks and what a date means."""
