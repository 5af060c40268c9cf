"""The command line: `statecore …`."""
