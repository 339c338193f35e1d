"""Looks at tables that tasks read or wait for, without running a task: for plans, gaps and waits."""
