package models

import "strconv"

// graph is one of the three graphs of a vision-language model.
type graph struct {
	role, name string
	data       int // files of external data beside it
	maybe      int // and as many that may be there as well
}

// chat is a vision-language model in the layout of transformers.js: three graphs
// below onnx/, and the texts that say how pictures and words are prepared.
func chat(name string, from func(string) string, judge string, graphs ...graph) []File {
	var files []File
	add := func(role, path string, optional bool) {
		files = append(files, File{Role: role, Name: name + "/" + path, Source: from(path), Optional: optional})
	}
	for _, g := range graphs {
		path := "onnx/" + g.name + ".onnx"
		add(g.role, path, false)
		for i := range g.data + g.maybe {
			role, part := g.role+"_data", path+"_data"
			if i > 0 {
				role, part = role+"_"+strconv.Itoa(i), part+"_"+strconv.Itoa(i)
			}
			add(role, part, i >= g.data)
		}
	}
	add("config", "config.json", false)
	add("preprocessor", "preprocessor_config.json", false)
	add("tokenizer", "tokenizer.json", false)
	add("tokenizer_config", "tokenizer_config.json", false)
	add("generation", "generation_config.json", true)
	add("processor", "processor_config.json", true)
	// One of the two, or neither: then tokenizer_config.json holds the template.
	add("chat_template", "chat_template.json", true)
	add("chat_template_jinja", "chat_template.jinja", true)
	return append(files, sidecar(name+"/judge.json", judge))
}

const (
	smolInput = "512x512 in one piece (judge.json: split false, longest_edge 512), RGB, (x/255-0.5)/0.5; 64 tokens a picture; " +
		"float32 key-value cache (float16 in half precision)"
	qwenInput = "sides multiples of 28, at most 401,408 pixels (judge.json: max_pixels), RGB, CLIP's mean and deviation; a token for " +
		"28x28 pixels; float32 key-value cache"
)

// judges are the vision-language models that a judge runs here. fp16 is half precision, the
// key-value cache too, for cards: a CPU computes it in float32 and gains nothing. q4 is the
// decoder's weights in 4 bits, with a float32 cache.
func judges() []Model {
	hf := Licence{SPDX: "Apache-2.0", Holder: "Hugging Face", URL: "https://www.apache.org/licenses/LICENSE-2.0"}
	alibaba := Licence{SPDX: "Apache-2.0", Holder: "Alibaba Cloud", URL: "https://huggingface.co/Qwen/Qwen2-VL-2B-Instruct/blob/main/LICENSE"}
	research := Licence{
		SPDX: "LicenseRef-Qwen-Research", Holder: "Alibaba Cloud", NonCommercial: true,
		URL: "https://huggingface.co/Qwen/Qwen2.5-VL-3B-Instruct/blob/main/LICENSE",
	}
	small := at("HuggingFaceTB/SmolVLM-256M-Instruct", "7e3e67edbbed1bf9888184d9df282b700a323964")
	middle := at("HuggingFaceTB/SmolVLM-500M-Instruct", "a7da5b986cb59b408707209984f360a5f4ad7e47")
	two := at("onnx-community/Qwen2-VL-2B-Instruct", "187b05efd51ca56b19489f085aa2d7c7fa5078fc")
	three := at("onnx-community/Qwen2.5-VL-3B-Instruct-ONNX", "main")
	vision, embed := graph{role: "vision", name: "vision_encoder"}, graph{role: "embed", name: "embed_tokens"}
	decoder, q4 := graph{role: "decoder", name: "decoder_model_merged"}, graph{role: "decoder", name: "decoder_model_merged_q4"}
	half := func(g graph) graph { g.name += "_fp16"; return g }
	split := func(g graph, data, maybe int) graph { g.data, g.maybe = data, maybe; return g }
	named := func(g graph, name string) graph { g.name = name; return g }

	return []Model{
		{
			Name: "smolvlm-256m", Summary: "SmolVLM 256M Instruct: judges pictures on a CPU; the smallest",
			Licence: hf, Homepage: "https://huggingface.co/HuggingFaceTB/SmolVLM-256M-Instruct", Preprocessing: smolInput,
			Files: chat("smolvlm-256m", small, "judge-smolvlm.json", vision, embed, decoder),
		},
		{
			Name: "smolvlm-256m-fp16", Summary: "SmolVLM 256M Instruct in half precision: for cards",
			Licence: hf, Homepage: "https://huggingface.co/HuggingFaceTB/SmolVLM-256M-Instruct", Preprocessing: smolInput,
			Files: chat("smolvlm-256m-fp16", small, "judge-smolvlm-fp16.json", half(vision), half(embed), half(decoder)),
		},
		{
			Name: "smolvlm-256m-q4", Summary: "SmolVLM 256M Instruct with a decoder of 4 bits",
			Licence: hf, Homepage: "https://huggingface.co/HuggingFaceTB/SmolVLM-256M-Instruct", Preprocessing: smolInput,
			Files: chat("smolvlm-256m-q4", small, "judge-smolvlm-q4.json", vision, embed, q4),
		},
		{
			Name: "smolvlm-500m", Summary: "SmolVLM 500M Instruct: judges better than 256M at twice the work",
			Licence: hf, Homepage: "https://huggingface.co/HuggingFaceTB/SmolVLM-500M-Instruct", Preprocessing: smolInput,
			Files: chat("smolvlm-500m", middle, "judge-smolvlm.json", vision, embed, decoder),
		},
		{
			Name: "smolvlm-500m-fp16", Summary: "SmolVLM 500M Instruct in half precision: for cards",
			Licence: hf, Homepage: "https://huggingface.co/HuggingFaceTB/SmolVLM-500M-Instruct", Preprocessing: smolInput,
			Files: chat("smolvlm-500m-fp16", middle, "judge-smolvlm-fp16.json", half(vision), half(embed), half(decoder)),
		},
		{
			Name: "smolvlm-500m-q4", Summary: "SmolVLM 500M Instruct with a decoder of 4 bits",
			Licence: hf, Homepage: "https://huggingface.co/HuggingFaceTB/SmolVLM-500M-Instruct", Preprocessing: smolInput,
			Files: chat("smolvlm-500m-q4", middle, "judge-smolvlm-q4.json", vision, embed, q4),
		},
		{
			Name: "qwen2-vl-2b", Summary: "Qwen2-VL 2B Instruct: judges pictures of any shape; wants a GPU",
			Licence: alibaba, Homepage: "https://huggingface.co/Qwen/Qwen2-VL-2B-Instruct", Preprocessing: qwenInput,
			Files: chat("qwen2-vl-2b", two, "judge-qwen.json", split(vision, 1, 1), split(embed, 0, 1), split(decoder, 1, 3)),
		},
		{
			Name: "qwen2.5-vl-3b", Summary: "Qwen2.5-VL 3B Instruct: the best judge here; wants a GPU; for research only",
			Licence: research, Homepage: "https://huggingface.co/Qwen/Qwen2.5-VL-3B-Instruct", Preprocessing: qwenInput,
			Files: chat("qwen2.5-vl-3b", three, "judge-qwen.json", split(vision, 1, 1), split(embed, 0, 1), split(decoder, 1, 7)),
		},
		{
			Name: "qwen2.5-vl-3b-q4", Summary: "Qwen2.5-VL 3B Instruct in 4 bits; for research only",
			Licence: research, Homepage: "https://huggingface.co/Qwen/Qwen2.5-VL-3B-Instruct", Preprocessing: qwenInput,
			Files: chat("qwen2.5-vl-3b-q4", three, "judge-qwen-q4.json", split(named(vision, "vision_encoder_q4"), 0, 1),
				split(named(embed, "embed_tokens_q4"), 0, 1), split(q4, 0, 2)),
		},
	}
}
