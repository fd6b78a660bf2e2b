"""Objects in an object store or on a web server, with the same interface as local files."""
