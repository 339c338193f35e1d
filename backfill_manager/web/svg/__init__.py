"""Where things stand in a picture: pure functions from plain values to places. Templates turn them into SVG."""
