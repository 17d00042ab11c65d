"""Golden model, benches and tools around the design. Nothing here is synthesized."""
