package hftok

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// component is one JSON object of the file while it is read. Each key is asked for by name. What
// nobody has asked for is passed over, as the reference does: files carry keys of other components of
// the same section. In the file itself such a key would be a section, and is refused.
type component struct {
	at, kind string
	fields   map[string]json.RawMessage
	err      error // the first fault
}

// fileName is the place of the file itself.
const fileName = "tokenizer.json"

// openComponent reads the object at the place "at"; it is nil where the file says null or nothing.
func openComponent(at string, raw json.RawMessage) (*component, error) {
	if absent(raw) {
		return nil, nil //nolint:nilnil // null is a legal value of every section
	}
	c, err := openObject(at, raw)
	if err != nil {
		return nil, err
	}
	if !c.value("type", &c.kind) && c.err == nil {
		return nil, fmt.Errorf("%w: %s has no type", errInvalid, at)
	}
	return c, c.err
}

// openObject reads an object that need not have a type.
func openObject(at string, raw json.RawMessage) (*component, error) {
	c := &component{at: at}
	if err := json.Unmarshal(raw, &c.fields); err != nil {
		return nil, fmt.Errorf("%w: %s is not an object: %w", errInvalid, at, err)
	}
	return c, nil
}

func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// place names the component in messages.
func (c *component) place() string {
	if c.kind == "" {
		return c.at
	}
	return fmt.Sprintf("%s (%q)", c.at, short(c.kind))
}

// raw takes a key; it is nil where the file says null or nothing.
func (c *component) raw(key string) json.RawMessage {
	v := c.fields[key]
	delete(c.fields, key)
	if absent(v) {
		return nil
	}
	return v
}

// value decodes a key into v and reports whether it was there.
func (c *component) value(key string, v any) bool {
	raw := c.raw(key)
	if raw == nil {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		c.fail(fmt.Errorf("%w: %s: %s: %w", errInvalid, c.place(), key, err))
		return false
	}
	return true
}

// require is value for a key that must be there.
func (c *component) require(key string, v any) {
	if !c.value(key, v) {
		c.fail(fmt.Errorf("%w: %s has no %s", errInvalid, c.place(), key))
	}
}

// boolean returns a key's truth value, or what it is where it is missing.
func (c *component) boolean(key string, otherwise bool) bool {
	v := otherwise
	c.value(key, &v)
	return v
}

// text returns a string that must be there and may have at most limit bytes.
func (c *component) text(key string, limit int) string {
	var s string
	c.require(key, &s)
	return c.bounded(key, s, limit)
}

// char returns a string that must be one character.
func (c *component) char(key string) string {
	s := c.text(key, utf8.UTFMax)
	if c.err == nil && utf8.RuneCountInString(s) != 1 {
		c.fail(fmt.Errorf("%w: %s: %s is not one character", errInvalid, c.place(), key))
	}
	return s
}

func (c *component) bounded(key, s string, limit int) string {
	if len(s) > limit {
		c.fail(fmt.Errorf("%w: %s: %s has %d bytes, more than %d", errInvalid, c.place(), key, len(s), limit))
	}
	return s
}

func (c *component) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// close returns the first fault, or names the sections of the file that are not known.
func (c *component) close() error {
	if c.err != nil || len(c.fields) == 0 || c.at != fileName {
		return c.err
	}
	keys := slices.Sorted(maps.Keys(c.fields))
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%q", short(k))
	}
	return fmt.Errorf("%w: %s has unknown sections: %s", errUnsupported, c.place(), strings.Join(keys[:min(len(keys), 8)], ", "))
}

// unknown is the error for a type that is not implemented.
func (c *component) unknown() error {
	return fmt.Errorf("%w: %s has the unknown type %q", errUnsupported, c.at, short(c.kind))
}

// short keeps names out of a file from flooding a message.
func short(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// list reads the members of a Sequence; build gets each with its place.
func (c *component) list(key string, depth int, build func(at string, raw json.RawMessage) error) error {
	if depth >= maxDepth {
		return fmt.Errorf("%w: %s is nested more than %d sequences deep", errInvalid, c.at, maxDepth)
	}
	var members []json.RawMessage
	c.require(key, &members)
	if err := c.close(); err != nil {
		return err
	}
	if len(members) > maxMembers {
		return fmt.Errorf("%w: %s has %d members, more than %d", errInvalid, c.place(), len(members), maxMembers)
	}
	for i, raw := range members {
		at := fmt.Sprintf("%s.%s[%d]", c.at, key, i)
		if absent(raw) {
			return fmt.Errorf("%w: %s is null", errInvalid, at)
		}
		if err := build(at, raw); err != nil {
			return err
		}
	}
	return nil
}

// pattern reads {"String": …} or {"Regex": …}.
func (c *component) pattern(key string) finder {
	var p struct{ String, Regex *string }
	c.require(key, &p)
	if c.err != nil {
		return nil
	}
	var f finder
	var err error
	switch {
	case p.String != nil && p.Regex == nil:
		f, err = literal(c.bounded(key, *p.String, maxPattern)), c.err
	case p.Regex != nil && p.String == nil:
		f, err = compile(c.bounded(key, *p.Regex, maxPattern))
	default:
		err = errors.New("neither a String nor a Regex")
	}
	if err != nil {
		c.fail(fmt.Errorf("%s: %s: %w", c.place(), key, inClass(err)))
		return nil
	}
	return f
}

// inClass gives an error the class errInvalid unless it has one.
func inClass(err error) error {
	if errors.Is(err, errInvalid) || errors.Is(err, errUnsupported) {
		return err
	}
	return fmt.Errorf("%w: %w", errInvalid, err)
}
