"""The kernels behind `silva.operators.text`.

`read` makes Arrow text of any column, `letters` changes and cuts it. `tokenizer` and `vocabulary`
hold what people give, as data that plans can compare and fingerprint; `tokenize` makes lists of
tokens of text, `tokens` changes those. `one_thread` keeps a library from starting its own threads.
"""
