"""Parts of the register bank."""
