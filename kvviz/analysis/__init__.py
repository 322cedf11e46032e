"""Records and arrays in, tidy DataFrames out."""
