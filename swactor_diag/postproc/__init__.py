"""What a bundle tells: reading one, and the summary made from it. Needs no running node.

Import from the modules: ``load.load_run`` and ``summary.render``.
"""
