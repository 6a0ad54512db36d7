package hftok

import (
	"fmt"
	"slices"
)

// behavior says what a split does with what its pattern matched.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

// behavior reads the key "behavior".
func (c *component) behavior(otherwise behavior) behavior {
	b := string(otherwise)
	if !c.value("behavior", &b) && otherwise == "" {
		c.fail(fmt.Errorf("%w: %s has no behavior", errInvalid, c.place()))
	}
	switch b := behavior(b); b {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
		return b
	}
	c.fail(fmt.Errorf("%w: %s: behavior %q", errUnsupported, c.place(), short(b)))
	return otherwise
}

// shape joins and drops spans in place, as the behavior says. The rules are those of
// NormalizedString::split in the library; a match that follows a match is never joined to it but by
// Contiguous.
func (b behavior) shape(spans []span) []span {
	switch b {
	case removed:
		kept := spans[:0]
		for _, s := range spans {
			if !s.match {
				kept = append(kept, s)
			}
		}
		return kept
	case contiguous:
		return join(spans, func(before, s bool) bool { return before == s })
	case mergedWithPrevious:
		return join(spans, func(before, s bool) bool { return s && !before })
	case mergedWithNext:
		return joinNext(spans)
	case isolated:
	}
	return spans
}

// join puts a span to the one before where with says so of their matches.
func join(spans []span, with func(before, s bool) bool) []span {
	kept := spans[:0]
	before := false
	for _, s := range spans {
		if len(kept) > 0 && with(before, s.match) {
			kept[len(kept)-1].to = s.to
		} else {
			kept = append(kept, s)
		}
		before = s.match
	}
	return kept
}

// joinNext puts a match to the span behind it, looking from the end.
func joinNext(spans []span) []span {
	kept := len(spans)
	behind := false
	for _, s := range slices.Backward(spans) {
		if kept < len(spans) && s.match && !behind {
			spans[kept].from = s.from
		} else {
			kept--
			spans[kept] = s
		}
		behind = s.match
	}
	return spans[kept:]
}
