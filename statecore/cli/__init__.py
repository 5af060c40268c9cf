"""The command line ``statecore``: one module per command."""
