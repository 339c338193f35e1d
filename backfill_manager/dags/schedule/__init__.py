"""Cron expressions, time zones and timetables."""
