"""Built-in operators, a file a kind of column: kernel, traits and laws side by side.

A kernel maps whole columns to one column. Each file registers its operators when it is imported,
and it is imported when a plan first names one of them; so `import silva` loads no native library.
"""
