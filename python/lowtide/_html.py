"""How results show themselves in a notebook."""

from __future__ import annotations

import html


def preformatted(title: str, text: str) -> str:
    """A text with a title, as HTML."""
    return (
        f'<div style="border-left:3px solid #2a78d6;padding-left:.8em"><b>{html.escape(title)}</b>'
        f'<pre style="margin:.3em 0;white-space:pre-wrap">{html.escape(text)}</pre></div>'
    )
