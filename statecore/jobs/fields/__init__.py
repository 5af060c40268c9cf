"""Fields of requests: each is declared once; its JSON, its option and its place in a form are derived from that.

A request is made of ``declaration.py`` (``declare``), ``types.py`` (kinds of values) and ``catalog.py`` (fields that
several jobs share; ``tasks.py`` and ``diagnosis.py`` import more). Dag files import it whenever they are parsed.
"""
