"""Small stream parts that every block uses."""
