"""Memory that processes share: who owns a segment, who still reads it, and when it is freed."""
