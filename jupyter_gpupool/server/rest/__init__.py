"""The REST interface, said once: the shape of each answer and body, and the table of routes."""
