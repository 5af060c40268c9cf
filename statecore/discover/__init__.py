"""Which stores an application has, and of which kind, told by its topics, topology and directory."""
