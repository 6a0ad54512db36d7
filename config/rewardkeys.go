package config

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// This file says which keys a reward has: verl-omni's (verl_omni/trainer/config/reward/reward.yaml)
// and ours. What has a simple value is read by what stands here (reader.described).

// numberForm is what a key may be that is any number.
const numberForm = "a number"

// target is what Hydra writes beside many sections: the name of a class, which is read and means
// nothing here. Keys without prose are not listed for people.
func target(k *keys.Set) { k.Other("_target_", "", "", "") }

// rewardSection is what stands below reward, and below rewards.<name>.
func rewardSection() *keys.Section {
	s := &keys.Section{Name: "reward", Doc: "The reward of samples that do not choose a reward by name, with the keys of verl-omni."}
	s.Int(new(int), "num_workers", 8, "Number of reward-loop workers in this process, shared by all rewards. 0: none. Default with a reward_model on a reward pool: n_gpus_per_node / tensor_model_parallel_size.").Max(4096)
	s.Other("concurrency", auto, concurrencyForm(), concurrencyDoc)
	one := s.Section("custom_reward_function", "The only component of a reward.")
	pathKeys(&one.Set)
	var rest keys.Set
	functionKeys(&rest, new(ComponentConfig))
	placementDocs(&rest)
	rest.Other("reward_kwargs", "", "options", "Arguments of the Python function, or options of the scorer.")
	rest.Bool(new(bool), "steps", stepsDoc)
	rest.Other("max_concurrency", "", "1…"+strconv.Itoa(mostConcurrency), "Alias of concurrency for a Python function, under the name that the recipe async_reward_agent uses. Only one of the two keys may be set.")
	rest.Unset()
	one.Keys = append(one.Keys, rest.Keys...)
	s.Other("reward_functions", "", "components by name", "Components of a reward, by name, each with a scorer and the keys of reward.reward_functions.<key>.")
	s.Other("aggregation", string(rewards.WeightedSum), "weighted_sum, weighted_mean, min, max or product", "Rule that combines the values of the components into one reward. The reward loop of verl-omni supports weighted_sum only.")
	s.Other("on_sample_failure", string(rewards.PolicyNone), "none, zero, group_mean or value:<number>", "Fallback that the trainer gets for a failed sample, in addition to the null score. none: no fallback. zero: 0. group_mean: mean score of the prompt group.")
	managerKeys(s.Section("reward_manager", "The reward manager of a verl recipe. The section is optional: rewardloop handles one component or several without a manager."))
	s.Other("models", "", "engines by name", "Engines that rewardloop starts, by name, with the keys of reward.models.<name>. A component calls the engine with the component's name, or the engine named by the component's key `model`.")
	modelKeys(s.Section("reward_model", "The model that the judges of this reward call: on servers that rewardloop starts, on servers that already run, or in this process."))
	sandbox := s.Section("sandbox_fusion", "The sandbox that runs code of this reward.")
	sandbox.Other("url", "", "an address", "Address of the code sandbox. Without an address the other keys of the sandbox have no effect.")
	sandbox.Other("max_concurrent", "", "1 or more", "Maximum number of programs that run in the sandbox at a time.")
	sandbox.Other("memory_limit_mb", "", "1 or more", "Memory limit of one program in the sandbox, in MB.")
	target(&sandbox.Set)
	s.Keys = append(s.Keys, unset(func(k *keys.Set) {
		k.Other("reward_fn_key", "data_source", "data_source or extra_info.<name>", "Field of a sample that selects the components: a component with the key `when` scores only samples whose value of this field is in the list `when`.")
		k.Other("group_by", "uid", "uid or prompt", "Rule that forms prompt groups. uid: samples with the same uid. prompt: also samples of a step that have the same prompt and a group_size, but no uid.")
		k.Other("verify", "", "tools by name", "Tools, by name, that check a sample before scoring. Keys: kind ("+strings.Join(verifyKinds(), ", ")+"), required (default true: if the tool fails, the sample fails), timeout, and options of the kind.")
		k.Other("compute_score_kwargs", "", "", "")
		target(k)
	})...)
	over := s.Section("reward_kwargs", "The penalty of verl's dapo manager for overlong responses.")
	over.Other("max_resp_len", "", "1 or more", "Response length in tokens at which the penalty for overlong responses reaches penalty_factor. Responses are not shortened.")
	over.Section("overlong_buffer_cfg", "The penalty for overlong responses.", keys.Func(func(k *keys.Set) { new(Overlong).bufferKeys(k, new(bool)) })).Set.Unset()
	over.Set.Unset()
	over.Unset = true
	return s
}

// unset are keys that have no value where they are not written.
func unset(add func(k *keys.Set)) []*keys.Key {
	var k keys.Set
	add(&k)
	k.Unset()
	return k.Keys
}

// pathKeys adds what names the scorer of a function.
func pathKeys(k *keys.Set) {
	k.Other("path", "", "builtin://<scorer>, scorer://<model>, a Python file, pkg://<module>, http(s)://… or onnx://<model>", "Location of the component's scorer: a built-in scorer, a published model, a Python file or module, a server or an ONNX model.")
	k.Other(acceptKey, "", "a licence", "SPDX name of the licence that you accept for a scorer://<model> that is not free for every use. Without the name the configuration is refused.")
	k.Text(new(string), "name", defaultFunction, "Name of the function or class in the Python file or module.")
}

const stepsDoc = "Declares that the scorer returns a score for each reasoning or denoising step of a sample (process rewards)."

// functionKeys adds what every function of a reward may say besides its path and the options of
// its scorer.
func functionKeys(k *keys.Set, t *ComponentConfig) {
	k.Duration(&t.Timeout, "timeout", rewards.DefaultComponentTimeout, "Time limit for one sample, retries included. Left out: loop.component_timeout. At most loop.claim_timeout.").Min(time.Millisecond)
	k.Int(&t.Retries, "retries", 0, "Maximum number of times that the scorer is called again for a sample after a temporary failure of the scorer, or of a service that the scorer calls.").Max(20)
	k.Other("concurrency", auto, concurrencyForm(), "Maximum number of concurrent calls to the scorer in this process; for a Python function, in each Python process. auto: as many as the scorer's CPUs, Python processes or engine can run.")
	k.Other("invalid_values", "", "numbers", "Scores that mean failure, such as [-999, -1].")
	k.Other("when", "", "strings", "Values of the field reward_fn_key for which the component scores a sample, such as [ocr, geneval]. Left out: the component scores all samples.")
	k.Other("clip", "", "[least, largest]", "Bounds of the scorer's value, before scale.")
	k.Other("scale", "1", numberForm+" that is not 0", "Factor applied to the value, after clip.")
	k.Other("min_members", "2", "1 or more, or all", "Minimum number of members of a prompt group for a scorer of whole groups. Missing and failed members do not count. In a smaller group the component fails. all: every member is needed.")
	k.Other("extra_keys", "", "number, bool or string by name", "Names and types of the scalars that a Python function returns besides the score. Left out: the scalars of the first successful call.")
	k.Other("pixels", "auto", "auto, numpy, torch, pil or path", "Type of the media that a Python function gets. auto: torch tensors if the module imports torch, else NumPy arrays. path: path of a PNG, AVI, WAV or NPY file, which is removed after the call.")
	k.Other("frames", "all", "all, first, every:<n>, fps:<rate> or uniform:<n>", "Frames of a video that a Python function gets; other scorers have a frames option of their own.")
	k.Other("memory", "", "a size", "Maximum resident memory of one process of a Python function, child processes included. A process above the maximum is killed. Left out: pool.python.memory.")
	k.Other("env", "", "names of variables", "Environment variables that a Python function gets, in addition to those of Python and its libraries. Left out: all variables except the server's secrets.")
	k.Other(signatureKey, "", "one of "+strings.Join(python.Signatures(), ", "), "Calling convention of a Python function, which gets whole prompt groups, or batches of samples with batch: true. Left out: one sample per call, or groups if the class has score_group.")
	k.Other("reference", "", "ground_truth, or a path below ground_truth or extra_info", "Field with a reference answer, for a Python function of whole prompt groups. In validation the answer is one more member of each group. Example: extra_info.y.0.content.")
	k.Other("interpreter", "", "a program", "Python interpreter that runs the function, such as envs/hpsv3/bin/python for a function with a separate environment. Left out: pool.python.interpreter.")
	k.Other("environment", "", "{python, requirements, system_site_packages}", "Python environment of the function, in place of interpreter: python (version or path), requirements (file or list), system_site_packages. `rewardloop env make -c FILE` creates the environment.")
	k.Other("probe", "true", "true, false or a list of "+strings.Join(python.Kinds(), ", "), "Known samples (built-in test samples) with which a Python function is called at start. true: the kinds that match the function's parameters. false: no call.")
}

// placementDocs explains the keys of a model in Python. They are read by takePython, and only where
// the scorer is one: others have options with the same names.
func placementDocs(k *keys.Set) { k.Keys = append(k.Keys, unset(new(python.Placement).Keys)...) }

// entryKeys adds what an entry of reward_functions may say besides that.
func entryKeys(k *keys.Set, t *ComponentConfig) {
	k.Other("weight", "1", numberForm, "Weight of the value in the aggregation.")
	k.Bool(&t.Required, "required", "Fails the sample if this function fails.")
	k.Other("on_failure", "", "group_mean, fail, zero or value:<number>", "Value of the component if its scorer fails and required is false. Left out: group_mean for a sample with a prompt group, else fail. zero: the behaviour of verl-omni.")
	k.Other("post_process", "", "a key of reward_functions", "Component whose Python class computes the values of this component for a finished prompt group, with its method post_process_scores. Replaces path.")
}

// entrySection is what stands below reward.reward_functions.<key>, besides the options of the
// scorer.
func entrySection() *keys.Section {
	s := &keys.Section{Name: "reward.reward_functions.<key>", Doc: "One component of a reward. All other keys are options of the scorer (`rewardloop scorers`) or arguments of the Python function, so that there is no reward_kwargs. With reward.models, the key model names the engine."}
	pathKeys(&s.Set)
	functionKeys(&s.Set, new(ComponentConfig))
	placementDocs(&s.Set)
	s.Other("steps", "false", "true or false", stepsDoc)
	entryKeys(&s.Set, new(ComponentConfig))
	return s
}

func managerKeys(s *keys.Section) {
	s.Other("source", "", "register or importlib", "Method by which verl finds the reward manager: by registered name (register) or by import (importlib). No effect in rewardloop.")
	s.Other("name", "", "MultiVisualRewardManager, VisualRewardManager, naive or dapo", "Reward manager of verl. dapo adds the penalty of reward.reward_kwargs. MultiVisualRewardManager is for reward_functions, the others for custom_reward_function; the names have no other effect.")
	s.Keys = append(s.Keys, unset(target)...)
	module := s.Section("module", "Module from which verl imports the reward manager.")
	module.Other("path", "", "pkg://verl_omni.reward_loop.reward_manager…", "Path of the reward manager's module; only the modules of verl-omni. No effect in rewardloop.")
	module.Keys = append(module.Keys, unset(func(k *keys.Set) {
		k.Other("name", "", "a manager of verl-omni", "Class of the reward manager in verl-omni. No effect in rewardloop.")
		target(k)
	})...)
}

func modelKeys(s *keys.Section) {
	s.Bool(new(bool), "enable", "Uses this model for the components of the reward that call an engine, such as judges. false: the model is not used.")
	s.Bool(new(bool), "enable_resource_pool", "Reserves n_gpus_per_node GPUs of each machine as the reward pool, a pool for engines that rewardloop starts and for models with device: cuda.")
	s.Int(new(int), "n_gpus_per_node", defaultPerNode, "Number of GPUs that the reward pool has on each machine.")
	s.Int(new(int), "nnodes", 0, "Number of machines of the reward pool, 1 or more if enable_resource_pool is true. Start a process with workers on each machine yourself; the number has no other effect.")
	s.Other("model_path", "", "a name or a folder", "Model of the engine: the name in requests to running servers (rollout.name: external), else the name or the folder of the model.")
	s.Keys = append(s.Keys, unset(target)...)
	rolloutKeys(s.Section("rollout", "The engine of the reward_model. Other keys of verl's rollout are arguments of the command that starts an engine, without effect on servers that already run."))
}

// rolloutKeys are those of verl's RolloutConfig as its reward.yaml lists them, and
// ours: base_urls, the addresses of engines that run already, and how they are asked.
func rolloutKeys(s *keys.Section) {
	s.Other("name", "", "external, onnx, vllm, sglang or transformers", "Engine. external: servers that already run. onnx: each process with workers runs the model itself. Other values: each process with workers starts its own servers of this engine.")
	for _, name := range parallelKeys() {
		s.Int(new(int), name, 1, parallelDoc(name)).Between(1, math.MaxInt16)
	}
	s.Find(parallelKeys()[0]).Default = defaultTensor
	for name := range strings.FieldsSeq(`
		dtype gpu_memory_utilization enforce_eager cudagraph_capture_sizes free_cache_engine
		expert_parallel_size
		max_num_batched_tokens max_model_len max_num_seqs load_format layered_summon full_determinism seed
		scheduling_policy multi_stage_wake_up engine_kwargs limit_images enable_chunked_prefill
		enable_prefix_caching disable_log_stats skip_tokenizer_init ignore_eos temperature top_k top_p
		do_sample n prompt_length response_length quantization quantization_config_file mtp
		disaggregation`) {
		s.Other(name, "", "", "")
	}
	f := s.Section("profiler", "Profiles of chosen training steps: of engine servers that rewardloop starts, and of the processes of Python functions.")
	f.Bool(new(bool), "enable", "Turns profiling on.")
	f.Other("tool", "", "torch or nsys", "Profiler. torch: PyTorch's profiler in the process. nsys: NVIDIA's Nsight Systems, which runs the engine server.")
	f.Other("ranks", "", "numbers", "Numbers, from 0, of the engine servers, and of the processes of each Python function, to profile.")
	f.Bool(new(bool), "all_ranks", "Profiles all engine servers and all processes of Python functions.")
	f.Other("save_path", profilesFolder, "a folder", "Folder for profiles.")
	f.Other("tool_config", "", "", "")
	f.Keys = append(f.Keys, unset(func(k *keys.Set) {
		k.Other("steps", "[1]", "numbers", "Numbers of the training steps to profile.")
		target(k)
	})...)
	s.Keys = append(s.Keys, unset(func(k *keys.Set) {
		baseURLs(k)
		localModel(k, "Device of an ONNX model (default cpu), or cpu or cuda for a started engine (default cuda). cuda: every GPU of the reward pool, or without a pool every GPU that the process sees.")
		new(Managed).Keys(k)
		newEngine("").Keys(k)
		target(k)
	})...)
}

// parallelDoc explains one of parallelKeys.
func parallelDoc(name string) string {
	words := map[string]string{"tensor_model_parallel_size": "Tensor", "pipeline_model_parallel_size": "Pipeline", "data_parallel_size": "Data"}
	doc := words[name] + "-parallel size of one engine server. A server uses as many GPUs as the product of its tensor, pipeline and data parallel sizes."
	if name == parallelKeys()[0] {
		doc += " Default for transformers and with device: cpu: 1."
	}
	return doc
}

func baseURLs(k *keys.Set) {
	k.Other("base_urls", "", "addresses", "Addresses of the engine's servers, such as [http://127.0.0.1:8000].")
}

func localModel(k *keys.Set, device string) {
	k.Other("device", "cpu", "cpu, cuda or cuda:<n>", device)
	k.Other("fraction", "", "more than 0, at most 1", "Share of the memory of each GPU that is reserved for an ONNX model. 1: no other model uses the GPU. Left out: the memory that other models leave.")
}

// engineSection is what stands below engines.<name>.
func engineSection() *keys.Section {
	s := &keys.Section{Name: "engines.<name>", Doc: "An engine that judges call: interchangeable servers, or a model that rewardloop runs itself."}
	baseURLs(&s.Set)
	s.Other("model", "", "a name", "Model name in requests to the servers.")
	newEngine("").Keys(&s.Set)
	s.Other("onnx", "", "a name or a folder", "Folder or name of an ONNX model that each process with workers runs itself, in place of base_urls.")
	localModel(&s.Set, "Device of an ONNX model that each process with workers runs itself. cuda: every GPU of the reward pool, or without a pool every GPU that the process sees.")
	return s
}

// sectionNames are the names that may stand in one of the sections of a reward.
func sectionNames(path ...string) tree {
	at := treeOf(&rewardSection().Set)
	for _, name := range path {
		at = at[name]
	}
	return at
}

// besideNames are the keys that an entry of reward_functions may have besides its scorer's own.
func besideNames() []string { return entrySection().Names() }

func concurrencyForm() string {
	return "auto, or a whole number of 1…" + strconv.Itoa(mostConcurrency)
}
