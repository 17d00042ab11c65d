"""Parts of the ReadinessScoreboard: acknowledgements, tiles, regions, events."""
