"""What every rule of the pool works with: a step, its timers, the queue's lanes, and the scheduler's view of the state."""
