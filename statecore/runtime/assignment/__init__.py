"""Which member of a group holds which tasks: pure functions from what members have to what each is given."""
