"""What projects and users may have, what they used, and where they stand."""
