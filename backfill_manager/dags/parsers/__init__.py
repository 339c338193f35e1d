"""When which files of a bundle are read, and what is submitted of them: standard, single pass, event, and other people's."""
