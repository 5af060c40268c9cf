"""The state directory of an application: layout, lock, and placement of whole task directories."""
