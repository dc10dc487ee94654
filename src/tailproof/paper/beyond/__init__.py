"""Where the paper points: other sub-processes, rounds, and several passes."""
