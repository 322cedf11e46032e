"""Long work of the Pruning page; the same for every page, in `kvviz.ui.task`."""

from kvviz.ui.task import Bench, Progress, Task, Turn, Work, bench, result_of, run_or_stop

__all__ = ["Bench", "Progress", "Task", "Turn", "Work", "bench", "result_of", "run_or_stop"]
