"""Works on the whole state: retention, repair, export and import, and the short leadership that this takes."""
