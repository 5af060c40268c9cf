"""Jobs: requests, frozen plans, preconditions, phases, retries and reports, whichever engine does the work."""
