"""The two stages of a build: ranges to runs, runs to images; and where they stage their results."""
