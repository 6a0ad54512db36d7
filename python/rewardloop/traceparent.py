"""The W3C trace context of a sample: the caller's OpenTelemetry span, if there is one.

OpenTelemetry is not a dependency. A caller with a span has imported OpenTelemetry, so this module looks for it only
among the imported modules. For other callers this has no cost.
"""

from __future__ import annotations

import re
import sys

EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.DOTALL)


def valid(text: str) -> bool:
    """Whether text is a traceparent of version 00, or of a later version, which may have more fields at the end."""
    match = _FORM.fullmatch(text)
    if match is None:
        return False
    version, trace, span, more = match.groups()
    return version != "ff" and trace.strip("0") != "" and span.strip("0") != "" and (more is None or version != "00")


def current() -> str:
    """Returns the traceparent of the current span; "" if there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    try:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return ""
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags) & 0xFF:02x}"
    except (AttributeError, TypeError, ValueError):  # a module of that name that is another one
        return ""
