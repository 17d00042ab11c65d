"""Parts of the hub: its two halves, control messages, status, outer ports."""
