"""What steps cost, measured in place on real rows: seconds, CPU, bytes, and who holds Python's
lock."""
