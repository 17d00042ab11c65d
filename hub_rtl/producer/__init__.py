"""Parts of ProducerControl: decoder table, closes, send totals."""
