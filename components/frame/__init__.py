"""What every page has. Read ``experiment`` first: it calls the rest in the order of the page.

``page_state`` is what a visit remembers, with ``share_link``; ``controls``, ``code_editor`` and ``predict`` ask; ``running`` and
``execution`` get the result; ``findings``, ``program_output``, ``compare`` and ``take_away`` say it. ``page_bar``,
``device_badge`` and ``style`` stand around it.
"""
