"""Parts of the link port: sender, receiver, credit books."""
