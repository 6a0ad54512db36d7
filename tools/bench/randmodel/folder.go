package randmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// HalfVision, HalfEncoder and HalfDecoder are the names of a CLIP's tower that looks, and of a
// SmolVLM's encoder and decoder, with weights of 16 bits, the decoder's cache too.
const (
	HalfVision  = "vision_model_fp16.onnx"
	HalfEncoder = "vision_encoder_fp16.onnx"
	HalfDecoder = "decoder_model_merged_fp16.onnx"
)

// WriteCLIPFolder writes a CLIP as rewards take one: both towers, the sidecar and the tokenizer of
// the tiny model of the tests (testdata/models/tiny-clip), which is made like CLIP's. Beside them
// is HalfVision.
func WriteCLIPFolder(folder, tiny string, c CLIP) error {
	side := map[string]any{}
	if err := read(filepath.Join(tiny, "scorer.json"), &side); err != nil {
		return err
	}
	side["name"] = filepath.Base(folder)
	image, ok := side["image"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: scorer.json has no image", tiny)
	}
	image["steps"] = []any{
		map[string]any{"op": "resize_shortest", "size": c.Picture, "filter": "bicubic"},
		map[string]any{"op": "center_crop", "width": c.Picture, "height": c.Picture},
	}
	return whole(folder, func(at string) error {
		return errors.Join(
			write(filepath.Join(at, "scorer.json"), side), copies(at, tiny, "tokenizer.json"),
			c.WriteVision(filepath.Join(at, "vision_model.onnx"), Float32), c.WriteVision(filepath.Join(at, HalfVision), Float16),
			c.WriteText(filepath.Join(at, "text_model.onnx"), Float32),
		)
	})
}

// WriteSmolVLMFolder writes a SmolVLM as judges take one, with the tokenizer and the template of
// the tiny model of the tests (testdata/models/tiny-idefics3). Beside them are HalfEncoder and HalfDecoder.
func WriteSmolVLMFolder(folder, tiny string, s SmolVLM) error {
	var config, pixels, processor map[string]any
	err := errors.Join(
		read(filepath.Join(tiny, "config.json"), &config), read(filepath.Join(tiny, "preprocessor_config.json"), &pixels),
		read(filepath.Join(tiny, "processor_config.json"), &processor),
	)
	if err != nil {
		return err
	}
	text, ok := config["text_config"].(map[string]any)
	vision, also := config["vision_config"].(map[string]any)
	if !ok || !also {
		return fmt.Errorf("%s: config.json has no text_config or vision_config", tiny)
	}
	config["scale_factor"], text["vocab_size"] = s.Shuffle, s.Words
	vision["image_size"], vision["patch_size"] = s.Tile, s.Patch
	pixels["max_image_size"] = map[string]any{"longest_edge": s.Tile}
	pixels["size"] = map[string]any{"longest_edge": 4 * s.Tile}
	processor["image_seq_len"] = s.Tokens()
	return whole(folder, func(at string) error {
		onnx := filepath.Join(at, "onnx")
		if err := os.Mkdir(onnx, 0o755); err != nil { //nolint:gosec // models are for everybody
			return err
		}
		return errors.Join(
			write(filepath.Join(at, "config.json"), config), write(filepath.Join(at, "preprocessor_config.json"), pixels),
			write(filepath.Join(at, "processor_config.json"), processor),
			write(filepath.Join(at, "judge.json"), map[string]any{"format": 1, "split": false, "longest_edge": s.Tile}),
			copies(at, tiny, "chat_template.jinja", "generation_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"),
			s.WriteVision(filepath.Join(onnx, "vision_encoder.onnx"), Float32), s.WriteVision(filepath.Join(onnx, HalfEncoder), Float16),
			s.WriteEmbed(filepath.Join(onnx, "embed_tokens.onnx")),
			s.WriteDecoder(filepath.Join(onnx, "decoder_model_merged.onnx"), Float32), s.WriteDecoder(filepath.Join(onnx, HalfDecoder), Float16),
		)
	})
}

// whole fills a folder that appears whole or not at all. One that is there stays as it is.
func whole(folder string, fill func(at string) error) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	half, err := os.MkdirTemp(filepath.Dir(folder), ".making-")
	if err != nil {
		return err
	}
	if err = fill(half); err == nil {
		err = os.Rename(half, folder)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	return nil
}

func read(path string, to any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func write(path string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // as above
}

func copies(to, from string, names ...string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}
