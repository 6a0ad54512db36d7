package imageproc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The goldens of the CLIP family name the preprocessor_config.json that they were made with;
// what ships has a recipe in its scorer.json, which models/export/common.py makes of it.

// family is what an image processor of Hugging Face does where its file says nothing.
type family struct {
	size      map[string]int
	intIs     string         // what a size of one number means: "shortest_edge", or "" for a square
	crop      map[string]int // nil: it has no centre crop
	filter    Filter
	mean, std []float32
}

// families are the processors that FromPreprocessor knows: those whose steps are resize,
// centre crop, rescale and normalise. The figures are their defaults in transformers
// 4.57.6.
func families() map[string]family {
	square := func(n int) map[string]int { return map[string]int{"height": n, "width": n} }
	clip := family{
		size: map[string]int{"shortest_edge": 224}, intIs: "shortest_edge", crop: square(224),
		filter: Bicubic, mean: clipMean(), std: clipStd(),
	}
	vit := family{size: square(224), filter: Bilinear, mean: halfs(), std: halfs()}
	return map[string]family{
		"CLIPImageProcessor":          clip,
		"CLIPFeatureExtractor":        clip,
		"ChineseCLIPImageProcessor":   clip,
		"ChineseCLIPFeatureExtractor": clip,
		"BitImageProcessor":           clip,
		"SiglipImageProcessor":        {size: square(224), filter: Bicubic, mean: halfs(), std: halfs()},
		"ViTImageProcessor":           vit,
		"ViTFeatureExtractor":         vit,
		"BlipImageProcessor":          {size: square(384), filter: Bicubic, mean: clipMean(), std: clipStd()},
		"DeiTImageProcessor": {
			size: square(256), crop: square(224), filter: Bicubic,
			mean: []float32{0.485, 0.456, 0.406}, std: []float32{0.229, 0.224, 0.225},
		},
	}
}

// FromPreprocessor reads the preprocessor_config.json of an image processor that resizes,
// crops, rescales and normalises: those of CLIP, SigLIP, ViT, BLIP, DeiT and Bit (DINOv2),
// under their newer and older names, with "Fast" or without. Others, and keys or sizes
// that the processor does not have, are refused by name.
func FromPreprocessor(data []byte) (Recipe, error) {
	c, err := openConfig(data)
	if err != nil {
		return Recipe{}, err
	}
	known := families()
	fam, ok := known[c.typ]
	if !ok {
		return Recipe{}, fmt.Errorf("preprocessor_config.json: image_processor_type %q, want one of %s",
			c.typ, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	var r Recipe
	resize, ok := c.resize(fam)
	if take(c, "do_resize", true) && ok {
		r.Steps = append(r.Steps, resize)
	}
	crop := c.size("crop_size", fam.crop)
	if take(c, "do_center_crop", fam.crop != nil) {
		if n, ok := crop[""]; ok {
			crop = map[string]int{"height": n, "width": n}
		}
		switch {
		case fam.crop == nil:
			c.fault("do_center_crop is true, and this image processor does not crop")
		case keys(crop) != "height+width":
			c.fault("crop_size has %s, want height and width", keys(crop))
		}
		r.Steps = append(r.Steps, Step{Op: opCenterCrop, Width: crop["width"], Height: crop["height"]})
	}
	r.Rescale, r.Mean, r.Std = c.norm(fam.mean, fam.std)
	if err := c.done(); err != nil {
		return Recipe{}, err
	}
	if err := r.validate(); err != nil {
		return Recipe{}, fmt.Errorf("preprocessor_config.json of %s: %w", c.typ, err)
	}
	return r, nil
}

// resize reads the step that "size" and "resample" ask for, false if they do not make
// sense.
func (c *hfConfig) resize(fam family) (Step, bool) {
	size := c.size("size", fam.size)
	filter := c.filter(fam.filter)
	if n, ok := size[""]; ok {
		size = map[string]int{"height": n, "width": n}
		if fam.intIs != "" {
			size = map[string]int{fam.intIs: n}
		}
	}
	switch have := keys(size); {
	case have == "height+width":
		return Step{Op: opResize, Width: size["width"], Height: size["height"], Filter: filter}, true
	case have == "shortest_edge" && fam.intIs == have:
		return Step{Op: opResizeShortest, Size: size["shortest_edge"], Filter: filter}, true
	case have == "longest_edge" && fam.intIs != "":
		// transformers 4.57.6 takes the key and then finds no rule for it.
		c.fault("size has longest_edge alone, which %s does not resize to: write %s as a step of the recipe", c.typ, opResizeLongest)
	default:
		c.fault("size has %s, which %s does not resize to", have, c.typ)
	}
	return Step{}, false
}
