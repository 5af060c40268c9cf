"""What jobs have reported: of one directory, and of all."""
