package vlm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of a folder's files, in bytes, and of the numbers in them.
const (
	maxJSON    = 4 << 20
	maxContext = 1 << 17
	// usualContext is taken where config.json does not say how long a prompt may be.
	usualContext = 8192
)

// The sessions of a model by the stems of their files below onnx/.
const (
	visionStem  = "vision_encoder"
	embedStem   = "embed_tokens"
	decoderStem = "decoder_model_merged"
)

// suffixes are the ends of the files' names by dtype, as transformers.js has them.
func suffixes() map[string]string {
	return map[string]string{
		"": "", "fp32": "", "fp16": "_fp16", "int8": "_int8", "uint8": "_uint8", "q8": "_quantized",
		"q4": "_q4", "q4f16": "_q4f16", "bnb4": "_bnb4", "q2": "_q2", "q1": "_q1", "q2f16": "_q2f16", "q1f16": "_q1f16",
	}
}

// dtypes says in which precision each session runs: fp32, fp16, int8, uint8, q8, q4,
// q4f16, bnb4, q2, q1, q2f16 or q1f16; "" is fp32. It is the suffix of the file that is
// taken; its inputs and outputs may be float32 or float16.
type dtypes struct {
	Vision  string `json:"vision"`
	Embed   string `json:"embed"`
	Decoder string `json:"decoder"`
}

// sidecar is judge.json, which an exporter may write beside a model.
type sidecar struct {
	// Format is 1.
	Format int    `json:"format"`
	DType  dtypes `json:"dtype"`
	// Split shows large pictures in tiles where nobody says otherwise.
	Split bool `json:"split"`
	// LongestEdge overrides the size to which idefics3 brings a picture before it makes
	// tiles of it, in pixels; 0: as preprocessor_config.json says. It is that of pictures
	// shown as Split says: 512 makes one tile in the cheapest way, and is no size to cut up.
	LongestEdge int `json:"longest_edge"`
	// MaxPixels overrides the most pixels that qwen2_vl shows a picture with; 0: as
	// preprocessor_config.json says.
	MaxPixels int `json:"max_pixels"`
}

func (s sidecar) validate() error {
	var errs rewards.Faults
	errs.Add(s.Format != 1, "format: %d, want 1", s.Format)
	for name, d := range map[string]string{"vision": s.DType.Vision, "embed": s.DType.Embed, "decoder": s.DType.Decoder} {
		if err := checkDType(d); err != nil {
			errs = append(errs, fmt.Errorf("dtype.%s: %w", name, err))
		}
	}
	errs.Add(s.LongestEdge < 0 || s.LongestEdge > 8192, "longest_edge: %d, want 0 (the model's) to 8192", s.LongestEdge)
	errs.Add(s.MaxPixels < 0 || s.MaxPixels > 1<<26, "max_pixels: %d, want 0 (the model's) to %d", s.MaxPixels, 1<<26)
	return errors.Join(errs...)
}

func checkDType(d string) error {
	known := suffixes()
	if _, ok := known[d]; ok {
		return nil
	}
	delete(known, "")
	return fmt.Errorf("%q is unknown, want one of %s", d, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}

// config is what is read of config.json. Older models have everything on the top,
// newer ones what concerns the language model in text_config.
type config struct {
	ModelType       string `json:"model_type"`
	ImageTokenID    *int64 `json:"image_token_id"`
	ImageTokenIndex *int64 `json:"image_token_index"`
	ScaleFactor     int    `json:"scale_factor"`
	textConfig
	Text   textConfig `json:"text_config"`
	Vision struct {
		ImageSize        int `json:"image_size"`
		PatchSize        int `json:"patch_size"`
		SpatialMergeSize int `json:"spatial_merge_size"`
	} `json:"vision_config"`
}

type textConfig struct {
	VocabSize    int `json:"vocab_size"`
	MaxPositions int `json:"max_position_embeddings"`
	EOS          ids `json:"eos_token_id"`
}

// context is the longest prompt and answer together, in tokens.
func (c config) context() int {
	for _, n := range []int{c.Text.MaxPositions, c.MaxPositions} {
		if n > 0 {
			return min(n, maxContext)
		}
	}
	return usualContext
}

// vocabulary is the number of tokens the model knows; 0: config.json does not say.
func (c config) vocabulary() int {
	if c.Text.VocabSize > 0 {
		return c.Text.VocabSize
	}
	return c.VocabSize
}

// imageToken is the token of pictures, where config.json says which.
func (c config) imageToken() (int64, bool) {
	for _, id := range []*int64{c.ImageTokenID, c.ImageTokenIndex} {
		if id != nil {
			return *id, true
		}
	}
	return 0, false
}

// ids are token ids: one, several, or null.
type ids []int64

// UnmarshalJSON takes a number, a list of numbers, or null.
func (l *ids) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case bytes.Equal(data, []byte("null")):
		*l = nil
		return nil
	case len(data) > 0 && data[0] == '[':
		var many []int64
		if err := json.Unmarshal(data, &many); err != nil {
			return fmt.Errorf("want token ids: %w", err)
		}
		*l = many
		return nil
	}
	var one int64
	if err := json.Unmarshal(data, &one); err != nil {
		return fmt.Errorf("want a token id, a list of them, or null: %w", err)
	}
	*l = ids{one}
	return nil
}

// token is the text of a token: as it is, or in an object with its content, or null.
type token struct{ text string }

// UnmarshalJSON takes a string, an object with content, or null.
func (t *token) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(data, &t.text) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("want a token's text or an object with its content: %w", err)
	}
	t.text = object.Content
	return nil
}

// tokenizerConfig is what is read of tokenizer_config.json.
type tokenizerConfig struct {
	BOS          token           `json:"bos_token"`
	EOS          token           `json:"eos_token"`
	ChatTemplate json.RawMessage `json:"chat_template"`
}

// folder is a model as it lies on disk: the small files read, the large ones found.
type folder struct {
	path             string
	config           config
	sidecar          sidecar
	tokenizerConfig  tokenizerConfig
	generation       textConfig // of generation_config.json only eos_token_id is looked at
	preprocessorJSON []byte
	processorJSON    []byte // nil: there is none
	template         chatTemplate
	vision, embed    string
	decoder          string
}

// openFolder reads what says how the model is used, and finds its files. dtype, where
// it is not empty, is that of all sessions.
func openFolder(path, dtype string) (*folder, error) {
	f := &folder{path: path}
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("no model folder: %w", err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s is a file; want the model's folder, with config.json and onnx/", path)
	}
	if err := f.readFiles(); err != nil {
		return nil, err
	}
	return f, f.findSessions(dtype)
}

func (f *folder) readFiles() error {
	var missing []string
	for _, name := range []string{"config.json", "preprocessor_config.json", "tokenizer.json"} {
		if _, err := os.Stat(filepath.Join(f.path, name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s", f.path, strings.Join(missing, ", "))
	}
	pre, err := f.read("preprocessor_config.json", maxJSON)
	if err != nil {
		return err
	}
	f.preprocessorJSON = pre
	if f.processorJSON, err = f.read("processor_config.json", maxJSON); err != nil {
		return err
	}
	for name, into := range map[string]any{
		"config.json": &f.config, "tokenizer_config.json": &f.tokenizerConfig, "generation_config.json": &f.generation,
	} {
		data, err := f.read(name, maxJSON)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if err := decodeLoose(name, data, into); err != nil {
			return err
		}
	}
	if f.sidecar, err = f.readSidecar(); err != nil {
		return err
	}
	f.template, err = f.readTemplate()
	return err
}

// read returns a file of the folder; nil: it is not there.
func (f *folder) read(name string, limit int64) ([]byte, error) {
	file, err := os.Open(filepath.Join(f.path, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the model: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading the model: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", filepath.Join(f.path, name), limit)
	}
	return data, nil
}

func (f *folder) readSidecar() (sidecar, error) {
	data, err := f.read("judge.json", maxJSON)
	if data == nil || err != nil {
		return sidecar{}, err
	}
	return parseSidecar(data)
}

// parseSidecar reads a judge.json. An unknown key is refused by name.
func parseSidecar(data []byte) (sidecar, error) {
	var s sidecar
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return sidecar{}, fmt.Errorf("judge.json: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return sidecar{}, errors.New("judge.json: more than one JSON value")
	}
	if err := s.validate(); err != nil {
		return sidecar{}, fmt.Errorf("judge.json: %w", err)
	}
	return s, nil
}

// decodeLoose reads a file of Hugging Face's, which has many keys that are not looked at.
func decodeLoose(name string, data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// findSessions finds the files of the sessions, and names those that are not there.
func (f *folder) findSessions(dtype string) error {
	if err := checkDType(dtype); err != nil {
		return fmt.Errorf("dtype: %w", err)
	}
	d := f.sidecar.DType
	if dtype != "" {
		d = dtypes{dtype, dtype, dtype}
	}
	var errs []error
	for _, s := range []struct {
		stem, dtype string
		into        *string
	}{{visionStem, d.Vision, &f.vision}, {embedStem, d.Embed, &f.embed}, {decoderStem, d.Decoder, &f.decoder}} {
		name := s.stem + suffixes()[s.dtype] + ".onnx"
		*s.into = filepath.Join(f.path, "onnx", name)
		if _, err := os.Stat(*s.into); err != nil {
			errs = append(errs, fmt.Errorf("%s lacks onnx/%s; %s", f.path, name, f.others(s.stem)))
		}
	}
	return errors.Join(errs...)
}

// overrides reports whether dtype, of all sessions, takes other files than judge.json does.
func (f *folder) overrides(dtype string) bool {
	known, d := suffixes(), f.sidecar.DType
	return dtype != "" && slices.ContainsFunc([]string{d.Vision, d.Embed, d.Decoder}, func(of string) bool { return known[of] != known[dtype] })
}

// others says which files there are of a session.
func (f *folder) others(stem string) string {
	found, err := filepath.Glob(filepath.Join(f.path, "onnx", stem+"*.onnx"))
	if err != nil || len(found) == 0 {
		return "no file of another dtype exists"
	}
	for i, path := range found {
		found[i] = filepath.Base(path)
	}
	return "there is " + strings.Join(found, ", ") + "; choose with dtype"
}

// stops are the ids that end an answer: those of generation_config.json, config.json,
// the tokenizer's end, and the family's own.
func (f *folder) stops(t tokenizer, family family) []int64 {
	all := slices.Concat(f.generation.EOS, f.config.EOS, f.config.Text.EOS)
	for _, text := range append(family.Stops(), f.tokenizerConfig.EOS.text) {
		if id, ok := t.ID(text); ok && text != "" {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(id int64) bool { return id < 0 || id >= int64(t.Size()) })
}
