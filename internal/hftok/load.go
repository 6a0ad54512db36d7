package hftok

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Bounds of a file, several times what vocabularies of 256,000 tokens need.
const (
	maxFile    = 128 << 20 // bytes
	maxVocab   = 1 << 20   // tokens
	maxMerges  = 1 << 21
	maxAdded   = 1 << 16   // added tokens
	maxID      = 1<<24 - 1 // a model's embedding has a row for each id
	maxToken   = 4096      // bytes of a token
	maxContent = 256       // bytes that a normaliser puts in
	maxPattern = 4096      // bytes of a pattern
	maxDepth   = 16        // sequences within sequences
	maxMembers = 64        // members of a sequence
)

// Load reads the tokenizer.json at path. Errors wrap ErrInvalid or ErrUnsupported and name the place in
// the file.
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("hftok: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("hftok: read %s: %w", path, err)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse is Load for a file in memory. It keeps nothing of data.
func Parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrInvalid, maxFile)
	}
	c, err := openObject("tokenizer.json", data)
	if err != nil {
		return nil, err
	}
	if c.fields == nil {
		return nil, fmt.Errorf("%w: it is null", ErrInvalid)
	}
	version := "1.0"
	c.value("version", &version)
	if c.err == nil && version != "1.0" {
		return nil, fmt.Errorf("%w: version %q", ErrUnsupported, short(version))
	}
	t := &Tokenizer{}
	if err := errors.Join(t.readParts(c), c.close()); err != nil {
		return nil, err
	}
	return t, nil
}

// readParts reads the sections in the order in which each needs the ones before it.
func (t *Tokenizer) readParts(c *component) error {
	var err error
	if t.norm, err = buildNormalizer("normalizer", c.raw("normalizer"), 0); err != nil {
		return err
	}
	pre, err := buildPreTokenizer("pre_tokenizer", c.raw("pre_tokenizer"), 0)
	if err != nil {
		return err
	}
	vocab, err := t.readModel(c.raw("model"), &pre)
	if err != nil {
		return err
	}
	t.pre = pre
	if err := t.readAdded(c.raw("added_tokens"), vocab); err != nil {
		return err
	}
	if t.post, err = buildPost("post_processor", c.raw("post_processor")); err != nil {
		return err
	}
	if t.decode, err = buildDecoder("decoder", c.raw("decoder"), 0); err != nil {
		return err
	}
	if t.padding, err = readPadding(c.raw("padding")); err != nil {
		return err
	}
	if t.truncation, err = readTruncation(c.raw("truncation")); err != nil {
		return err
	}
	return t.checkIDs()
}

// checkIDs refuses ids of the post-processor and the padding that no token has.
func (t *Tokenizer) checkIDs() error {
	for _, id := range t.post.ids() {
		if _, ok := t.tokens[id]; !ok {
			return fmt.Errorf("%w: post_processor: no token has the id %d", ErrInvalid, id)
		}
	}
	return nil
}

func readPadding(raw json.RawMessage) (*Padding, error) {
	if absent(raw) {
		return nil, nil //nolint:nilnil // most files have no such section
	}
	c, err := openObject("padding", raw)
	if err != nil {
		return nil, err
	}
	p := &Padding{}
	c.require("pad_id", &p.ID)
	c.require("pad_type_id", &p.TypeID)
	p.Token = c.text("pad_token", maxToken)
	c.value("pad_to_multiple_of", &p.MultipleOf)
	p.Left = c.oneOf("direction", "Right", "Left") == "Left"
	strategy := c.raw("strategy")
	var name string
	var fixed struct{ Fixed *int }
	switch {
	case json.Unmarshal(strategy, &name) == nil && name == "BatchLongest":
	case json.Unmarshal(strategy, &fixed) == nil && fixed.Fixed != nil:
		p.Fixed = *fixed.Fixed
	default:
		c.fail(fmt.Errorf("%w: padding: strategy %s", ErrUnsupported, short(string(strategy))))
	}
	for _, n := range []int64{p.ID, p.TypeID, int64(p.Fixed), int64(p.MultipleOf)} {
		if n < 0 || n > maxID {
			c.fail(fmt.Errorf("%w: padding: %d is out of range", ErrInvalid, n))
		}
	}
	return p, c.close()
}

func readTruncation(raw json.RawMessage) (*Truncation, error) {
	if absent(raw) {
		return nil, nil //nolint:nilnil // most files have no such section
	}
	c, err := openObject("truncation", raw)
	if err != nil {
		return nil, err
	}
	tr := &Truncation{}
	c.require("max_length", &tr.MaxLength)
	c.require("stride", &tr.Stride)
	tr.Left = c.oneOf("direction", "Right", "Left") == "Left"
	names := map[string]string{"LongestFirst": "longest_first", "OnlyFirst": "only_first", "OnlySecond": "only_second"}
	tr.Strategy = names[c.oneOf("strategy", "LongestFirst", "OnlyFirst", "OnlySecond")]
	if tr.MaxLength < 0 || tr.Stride < 0 {
		c.fail(fmt.Errorf("%w: truncation: max_length %d and stride %d must not be negative", ErrInvalid, tr.MaxLength, tr.Stride))
	}
	return tr, c.close()
}

// oneOf returns a key that has one of the values; the first is what a missing key means.
func (c *component) oneOf(key string, values ...string) string {
	v := values[0]
	c.value(key, &v)
	if slices.Contains(values, v) {
		return v
	}
	c.fail(fmt.Errorf("%w: %s: %s %q is none of %q", ErrUnsupported, c.place(), key, short(v), values))
	return values[0]
}
