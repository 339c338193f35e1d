"""The commands of `bfm`, a file for each noun."""
