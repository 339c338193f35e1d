"""Processes for other people's code: the fork server, the manager's end of it, and the channel between two processes.

One fork server for each Python interpreter has imported what DAG files and tasks need and runs none of them. Each DAG file that
is read, and each try of a Python task, gets a fork of it: it begins warm, and ends with whatever the code did to it.
"""
