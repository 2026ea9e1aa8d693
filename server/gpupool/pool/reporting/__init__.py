"""What the pool tells of itself: history, metrics, reports, health, alerts."""
