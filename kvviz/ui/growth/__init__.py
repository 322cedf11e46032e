"""The Cache growth page in parts: what is asked, the run, the live view, and what it teaches."""
