"""What commands do with tasks and models; imported when a command runs, not for its help."""
