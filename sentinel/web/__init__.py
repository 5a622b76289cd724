"""The built-in pages: runs, one run, one incident; rendered here, with nothing from outside."""
