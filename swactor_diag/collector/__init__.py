"""Where the records of a run end up: received, stored once, and given back as one bundle.

Import from the modules: ``server`` (HTTP), ``ingest`` and ``bundle`` (without HTTP), ``storage``,
``local_sink``. Nothing here imports aiohttp but ``server`` and ``routes``.
"""
