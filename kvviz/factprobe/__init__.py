"""Whether facts survive in a cache that a policy cuts."""
