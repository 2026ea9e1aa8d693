"""Which of several pool servers decides: one leads, the others wait to take over."""
