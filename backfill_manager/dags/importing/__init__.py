"""Imports DAG files, each in a process of its own: `loader` asks what a file defines, `task_code` loads the functions of a
stored version for one try, `bundle_path` is how Python finds a bundle's modules there."""
