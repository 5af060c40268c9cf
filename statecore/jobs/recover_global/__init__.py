"""Recovery of global stores, as a job."""
