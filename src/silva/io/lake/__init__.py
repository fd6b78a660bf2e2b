"""Tables of files with a log or a footer: Parquet, Delta Lake, Iceberg, Lance."""
