"""Everything that touches the screen; the only package that imports Streamlit."""

import os

# Idle threads of torch's OpenMP wait by spinning, which a server, a browser or another visitor on the same
# cores pays for: with one busy process beside it a decode step took 490 ms instead of 70 (docs/design.md).
# Read when torch is first imported, so it is set here, before anything of this package imports it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
