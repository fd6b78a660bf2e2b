"""One run of a pipeline for all who want its batches: a server, and loaders that read from it."""
