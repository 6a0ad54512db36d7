package models

// at returns what makes sources of the paths in a repository.
func at(repository, revision string) func(path string) string {
	return func(path string) string { return "hf://" + repository + "/" + path + "@" + revision }
}

// towers is a model of two graphs, one for pictures and one for texts, in the layout
// of transformers.js: onnx/vision_model.onnx and onnx/text_model.onnx, float32. The
// folder of the model's name is flat, as the exporters write it.
func towers(name string, from func(string) string, sums map[string]File) []File {
	files := []File{
		{Role: "vision", Name: name + "/vision_model.onnx", Source: from("onnx/vision_model.onnx")},
		{Role: "text", Name: name + "/text_model.onnx", Source: from("onnx/text_model.onnx")},
		{Role: "tokenizer", Name: name + "/tokenizer.json", Source: from("tokenizer.json")},
		// The sidecar says how pictures are prepared; this is for those who compare.
		{Role: "preprocessor", Name: name + "/preprocessor_config.json", Source: from("preprocessor_config.json"), Optional: true},
	}
	for i, f := range files {
		files[i].Size, files[i].SHA256 = sums[f.Role].Size, sums[f.Role].SHA256
	}
	return append(files, sidecar(name+"/scorer.json", name+".json"))
}

const (
	clipInput = "224x224, shortest side bicubic and the centre, RGB, CLIP's mean and deviation; text: 77 tokens; " +
		"embeddings that are not normalised, logit_scale 100"
	siglipInput = "224x224, both sides bicubic, RGB, (x/255-0.5)/0.5; text: 64 tokens, lower case without punctuation; " +
		"embeddings that are not normalised, logit_scale 117.330765, logit_bias -12.932437"
)

// exporting is the command that exports a model of the catalogue.
func exporting(name string) string { return "rewardloop models export " + name }

// preferences are the models behind the scorers of package rewards/preference. The
// commits and sums are those that others state of the same files; where no commit
// was to be had the revision is main, and the first pull records the sums.
func preferences() []Model {
	clip := Licence{SPDX: "MIT", Holder: "OpenAI", URL: "https://github.com/openai/CLIP/blob/main/LICENSE"}
	return []Model{
		{
			Name: "clip-vit-large-patch14", Summary: "CLIP ViT-L/14: does a picture fit its prompt (clipscore); how alike are two pictures (image_similarity)",
			Licence: clip, Homepage: "https://huggingface.co/openai/clip-vit-large-patch14", Preprocessing: clipInput,
			Files: towers("clip-vit-large-patch14", at("Xenova/clip-vit-large-patch14", "main"), map[string]File{
				"vision": {Size: 1_216_438_437}, "text": {Size: 494_947_485},
			}),
		},
		{
			Name: "clip-vit-base-patch32", Summary: "CLIP ViT-B/32: the smaller CLIP, a tenth of the work",
			Licence: clip, Homepage: "https://huggingface.co/openai/clip-vit-base-patch32", Preprocessing: clipInput,
			Files: towers("clip-vit-base-patch32", at("Xenova/clip-vit-base-patch32", "d15189d7028b43f1d3e65039190477f6af591c2a"), map[string]File{
				"vision": {Size: 351_685_709, SHA256: "fd6e1402a588279d1723c7534d4bcba5bc0b14b47dfab0e46f8c47b8270d7d40"},
				"text":   {Size: 254_058_553, SHA256: "3f6571f5bad13a97c469c1622e1cfc4d9aef78b79fdbfcff804ca357bfada8cc"},
			}),
		},
		{
			Name: "siglip-base-patch16-224", Summary: "SigLIP B/16: the probability that a text describes a picture (siglip)",
			Licence:  Licence{SPDX: "Apache-2.0", Holder: "Google", URL: "https://github.com/google-research/big_vision/blob/main/LICENSE"},
			Homepage: "https://huggingface.co/google/siglip-base-patch16-224", Preprocessing: siglipInput,
			Files: towers("siglip-base-patch16-224", at("Xenova/siglip-base-patch16-224", "4649052661e53c7000355844105f8a1792088239"), map[string]File{
				"text":      {SHA256: "3aa7fdbd20eaa8740cce17bf82913de641fcb632a768fed59f661cdcd0c32553"},
				"tokenizer": {SHA256: "4a17c975210be5ab4c36b47d8dae4eefb866dbfb1e676e394aad85dc30a3ae08"},
			}),
		},
		{
			Name: "pickscore-v1", Summary: "PickScore v1, CLIP ViT-H/14: which picture people would pick for a prompt (pickscore)",
			Licence:  Licence{SPDX: "MIT", Holder: "Yuval Kirstain and others", URL: "https://github.com/yuvalkirstain/PickScore/blob/main/LICENSE"},
			Homepage: "https://huggingface.co/yuvalkirstain/PickScore_v1", Preprocessing: clipInput,
			Export: exporting("pickscore-v1"),
		},
		{
			Name: "hpsv2.1", Summary: "HPS v2.1, CLIP ViT-H/14: human preference for a picture of a prompt (hpsv2)",
			Licence:  Licence{SPDX: "Apache-2.0", Holder: "Xiaoshi Wu and others", URL: "https://github.com/tgxs002/HPSv2/blob/master/LICENSE"},
			Homepage: "https://huggingface.co/xswu/HPSv2", Preprocessing: "224x224, longest side bicubic and black around it, RGB, CLIP's mean and deviation; text: 77 tokens",
			Export: exporting("hpsv2.1"),
		},
		{
			Name: "aesthetic-v2", Summary: "LAION's aesthetic predictor on CLIP ViT-L/14: beauty of a picture, about 1 to 10 (aesthetic)",
			Licence:  Licence{SPDX: "Apache-2.0", Holder: "Christoph Schuhmann", URL: "https://github.com/christophschuhmann/improved-aesthetic-predictor"},
			Homepage: "https://github.com/christophschuhmann/improved-aesthetic-predictor", Preprocessing: "224x224 as CLIP ViT-L/14; one score",
			Export: exporting("aesthetic-v2"),
		},
	}
}
