package hftok

import (
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

// Load reads the tokenizer.json at path. Errors contain the place in the file.
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
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// parse is Load for a file in memory. It keeps nothing of data.
func parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", errInvalid, maxFile)
	}
	c, err := openObject(fileName, data)
	if err != nil {
		return nil, err
	}
	if c.fields == nil {
		return nil, fmt.Errorf("%w: the value is null", errInvalid)
	}
	version := "1.0"
	c.value("version", &version)
	if c.err == nil && version != "1.0" {
		return nil, fmt.Errorf("%w: version %q", errUnsupported, short(version))
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
	// Texts are neither padded nor cut here: that is the business of who encodes.
	c.raw("padding")
	c.raw("truncation")
	return t.checkIDs()
}

// checkIDs refuses ids of the post-processor that no token has.
func (t *Tokenizer) checkIDs() error {
	for _, id := range t.post.ids() {
		if _, ok := t.tokens[id]; !ok {
			return fmt.Errorf("%w: post_processor: no token has the id %d", errInvalid, id)
		}
	}
	return nil
}

// oneOf returns a key that has one of the values; the first is what a missing key means.
func (c *component) oneOf(key string, values ...string) string {
	v := values[0]
	c.value(key, &v)
	if slices.Contains(values, v) {
		return v
	}
	c.fail(fmt.Errorf("%w: %s: %s is %q, want one of %q", errUnsupported, c.place(), key, short(v), values))
	return values[0]
}
