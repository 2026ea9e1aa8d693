"""The node agent: reports devices, starts workers, keeps their deadlines."""
