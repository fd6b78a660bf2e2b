"""Tables: versions, logical columns, deduplication, as-of joins."""
