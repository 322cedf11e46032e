"""The parts of the Pruning & windows page."""
