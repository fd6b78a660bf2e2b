"""Arrays and Arrow tables, in files and in memory."""
