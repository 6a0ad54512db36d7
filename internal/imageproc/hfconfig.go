package imageproc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxConfig is the most bytes of a configuration file; Hugging Face's have about 1 kB.
const maxConfig = 1 << 20

// hfConfig reads a preprocessor_config.json key by key. Faults are collected, so that one
// try names all.
type hfConfig struct {
	typ  string // image_processor_type, without "Fast"
	raw  map[string]json.RawMessage
	errs []error
}

// openConfig reads the file and takes the keys from it that say nothing about pixels.
func openConfig(data []byte) (*hfConfig, error) {
	if len(data) > maxConfig {
		return nil, fmt.Errorf("preprocessor_config.json has %d bytes, want at most %d", len(data), maxConfig)
	}
	c := &hfConfig{}
	if err := json.Unmarshal(data, &c.raw); err != nil {
		return nil, fmt.Errorf("preprocessor_config.json: %w", err)
	}
	for key, v := range c.raw {
		if bytes.Equal(v, []byte("null")) {
			delete(c.raw, key)
		}
	}
	c.typ = strings.TrimSuffix(take(c, "image_processor_type", ""), "Fast")
	if old := take(c, "feature_extractor_type", ""); c.typ == "" {
		c.typ = old
	}
	for _, key := range []string{"processor_class", "auto_map", "_valid_processor_keys", "disable_grouping", "default_to_square"} {
		delete(c.raw, key)
	}
	take(c, "do_convert_rgb", true) // pixels are RGB here, always
	if f := take(c, "data_format", "channels_first"); f != "channels_first" {
		c.fault("data_format is %q, want channels_first", f)
	}
	return c, nil
}

func (c *hfConfig) fault(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// take reads a key and removes it; absent is the fallback.
func take[T any](c *hfConfig, key string, absent T) T {
	raw, ok := c.raw[key]
	if !ok {
		return absent
	}
	delete(c.raw, key)
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		c.fault("%s is %.80s: %w", key, raw, err)
		return absent
	}
	return v
}

// filter reads "resample".
func (c *hfConfig) filter(absent Filter) Filter {
	code := take(c, "resample", slices.Index(byCode(), absent))
	if code < 0 || code >= len(byCode()) {
		c.fault("resample is %d, want 0 to %d", code, len(byCode())-1)
		return absent
	}
	return byCode()[code]
}

// vector reads three numbers, or one for all three channels.
func (c *hfConfig) vector(key string, absent []float32) []float32 {
	if raw, ok := c.raw[key]; ok && len(raw) > 0 && raw[0] != '[' {
		v := take(c, key, float32(0))
		return []float32{v, v, v}
	}
	return take(c, key, absent)
}

// size reads a size in any of its forms. A number alone is {"": number}.
func (c *hfConfig) size(key string, absent map[string]int) map[string]int {
	raw, ok := c.raw[key]
	if !ok || len(raw) == 0 {
		return absent
	}
	switch raw[0] {
	case '{':
		return take(c, key, absent)
	case '[':
		pair := take(c, key, []int(nil))
		if len(pair) != 2 {
			c.fault("%s is %v, want height and width", key, pair)
			return absent
		}
		return map[string]int{"height": pair[0], "width": pair[1]}
	}
	return map[string]int{"": take(c, key, 0)}
}

// norm reads what is done with the numbers behind the steps.
func (c *hfConfig) norm(mean, std []float32) (float64, []float32, []float32) {
	rescale := take(c, "rescale_factor", 1.0/255)
	if !take(c, "do_rescale", true) {
		rescale = 1
	}
	mean, std = c.vector("image_mean", mean), c.vector("image_std", std)
	if !take(c, "do_normalize", true) {
		mean, std = []float32{0, 0, 0}, []float32{1, 1, 1}
	}
	return rescale, mean, std
}

// done refuses every key that nobody has read, unless it is false and so asks for nothing,
// and returns all faults.
func (c *hfConfig) done() error {
	for _, key := range slices.Sorted(maps.Keys(c.raw)) {
		if !bytes.Equal(c.raw[key], []byte("false")) {
			c.fault("key %q (%.80s) is not one that this image processor has", key, c.raw[key])
		}
	}
	if err := errors.Join(c.errs...); err != nil {
		return fmt.Errorf("preprocessor_config.json of %s: %w", c.typ, err)
	}
	return nil
}

// keys are a size's, in order.
func keys(size map[string]int) string {
	return strings.Join(slices.Sorted(maps.Keys(size)), "+")
}

// The statistics that Hugging Face's processors fall back to.
func clipMean() []float32 { return []float32{0.48145466, 0.4578275, 0.40821073} }
func clipStd() []float32  { return []float32{0.26862954, 0.26130258, 0.27577711} }
func halfs() []float32    { return []float32{0.5, 0.5, 0.5} }
