"""Text in files, cut into units by byte: lines, CSV, JSON lines."""
