"""What nodes say, and what they are asked."""
