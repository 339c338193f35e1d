"""Replaces the parts of tables that runs have written: by the rows of a preview, or by those of before."""
