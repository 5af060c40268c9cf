"""Discovery of an application's stores and their kinds, from topics, topology and state directory."""
