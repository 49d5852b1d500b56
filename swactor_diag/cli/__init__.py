"""The ``swactor`` command. One file a command group; what is heavy is imported when it is used."""
