"""Memory that processes share: who owns it, who still reads it, and when it is freed."""
