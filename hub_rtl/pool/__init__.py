"""Parts of the PacketManager: the pool, the choice of what leaves, the building of packets."""
