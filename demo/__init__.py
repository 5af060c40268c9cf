"""The walking demo: a real application loses its state and gets it back."""
