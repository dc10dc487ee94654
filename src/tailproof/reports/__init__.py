"""What a fit found, as text, HTML and SVG."""
