"""What a reader sees: text on the terminal, tables, pages, figures, messages."""
