"""What tables hold, by their logs and by what runs have written: gaps, and whether data is there."""
