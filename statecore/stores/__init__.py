"""State stores that keep rows together with their changelog offset; users import them from :mod:`statecore`."""
