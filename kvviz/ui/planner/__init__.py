"""The parts of the Memory planner page."""
