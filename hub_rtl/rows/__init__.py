"""Parts of the SlotAllocator: per slice the lookup and issue of rows; shared the address table and the spill engine."""
