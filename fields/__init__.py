"""What an index is made of: kinds of fields, filters, analysis, vectors. Pure, no I/O.

Import these names from ``retriever``; this package is its foundation and never imports it.
"""
