"""How results are printed on a terminal."""
