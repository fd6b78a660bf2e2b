"""Built-in operators: a file or room for each kind of column, with its laws beside it.

An operator's typed method, its declaration with the facts that laws rely on, and its kernel stand
together in one file. A kernel maps whole columns to one column; `rows` chains kernels that work on
one row at a time. A declaration registers its operator when its file is imported, which happens
when a plan or a pipeline first names the kind. Native libraries are imported when a kernel first
uses them (`native`), so `import silva` and writing a pipeline load none. `from_torchvision` and
`from_text` recognise transforms and tokenizers of other libraries.
"""
