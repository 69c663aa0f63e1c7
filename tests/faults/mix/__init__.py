"""Random mixes of tasks, faults and restarts, and a checker that knows what is promised of them."""
