"""The code of a task, by kind, and `ctx`, what it is given. Runs in a task process; SQL tasks run in a thread of the manager."""
