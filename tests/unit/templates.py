"""Where databases lie that many tests copy: below pytest's temporary root, which it clears."""

TEMPLATES = "STATECORE_TEST_TEMPLATES"
"""Environment variable that names the directory; processes that a test starts find the databases there, too."""
