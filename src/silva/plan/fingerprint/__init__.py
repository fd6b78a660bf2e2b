"""Fingerprints: equal meaning, equal hash, in every process and on every machine.

The fingerprint of a function covers its code, defaults and closure, and the globals and helper
functions that it uses, also in other modules of the user's own (`modules`). Libraries count by name
and version (`libraries`). Silva itself counts by the tags that its classes declare
(`plan.class_tags`) and by the revisions of its operators, so neither a new version of silva nor a
new name within it changes a fingerprint. `hasher` feeds all of it into one digest. A value that
cannot be hashed stably makes the function *opaque*: it is identified within this process only, and
`opaque_parts` names the culprit.
"""

from silva.plan.fingerprint.hasher import (
    column_fingerprints,
    digest,
    fingerprint,
    opaque_parts,
    says_only_how,
)

__all__ = ["column_fingerprints", "digest", "fingerprint", "opaque_parts", "says_only_how"]
