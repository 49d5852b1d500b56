"""The base of every event: a fact that happened once, at a moment.

Owns: how an event is tagged, so that a recorder can write any event without knowing its type.
Not here: sequence numbers and times (the recorder stamps them), values that merely are (``statistics()``).

An event type is declared once, beside whoever produces it: ``class X(Event, frozen=True, kw_only=True)``
(msgspec hands neither flag down). Its class name is its ``type`` in the record. Fields are additive: a new
one defaults to ``UNSET`` and is then left out when absent; a field that the original format always carried
defaults to ``None`` and is written as ``null``.
"""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Something that happened once. Subclass it, name it in the past tense, give it fields."""
