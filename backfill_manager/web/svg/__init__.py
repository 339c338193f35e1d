"""Layout of pictures: pure functions from plain values to coordinates. Templates turn them into SVG."""
