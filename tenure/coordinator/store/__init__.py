"""The SQLite database that holds the truth: opening it safely, its migrations, and its named queries."""
