"""From what was read of a state directory to what is to be said of it: pure functions, an idea each."""
