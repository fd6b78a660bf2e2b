r"""Regular expressions that mean the same to Oniguruma (tokenizers) and to PCRE2 (fastokens).

The two read many signs differently: `^` and `$` are about lines to one and about the text to the
other, `\h` is a hexadecimal digit or a space, `a{1,3}+` repeats or is possessive, `[a&&b]` and
`[[ab]c]` are sets of sets or plain characters, `\w` knows other scripts. What tokenizers are made
of needs none of these: characters, classes of them, Unicode properties, `\s`, groups, alternatives,
look-ahead and repetition. Only patterns of these are equal, and then `hard_texts` has the
characters which the engines file differently.
"""

from __future__ import annotations

import re

_CHARACTER = r"""\\[rntfv'"/.,:;!?*+|(){}\[\]\\^$#&~<>=@ -]|\\[sSpP]|\\x\{?[0-9A-Fa-f]+\}?"""
_PROPERTY = r"\\[pP]\{(?:L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|Han)\}"
_IN_CLASS = rf"(?:{_PROPERTY}|{_CHARACTER}|[^\[\]\\&]|&(?!&))"
_REPEATED = r"(?:[?*+][?+]?|\{\d*,?\d*\}(?![?+]))"
_PART = (
    rf"\[\^?{_IN_CLASS}+\]|{_PROPERTY}|{_CHARACTER}|\((?:\?(?:i?:|[=!])|(?!\?))|\)|\||{_REPEATED}"
    r"|[^\[\]\\^$.(){}?*+|]"
)
_COMMON = re.compile(rf"(?:{_PART})*")


def means_the_same(pattern: str) -> bool:
    r"""Whether both engines read a pattern the same way.

    >>> means_the_same(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+")
    True
    >>> means_the_same(r"^\w+"), means_the_same("[a-z&&[^x]]"), means_the_same("(?<=a)b")
    (False, False, False)
    """
    return _COMMON.fullmatch(pattern) is not None
