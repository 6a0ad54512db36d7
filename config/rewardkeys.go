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
	s := &keys.Section{Name: "reward", Doc: "The reward of samples that name none, in verl-omni's keys."}
	s.Int(new(int), "num_workers", 8, "Number of reward-loop workers inside this process, for all rewards. 0: none. Default with a reward_model on a GPU pool: the number of engines that fit on the GPUs of a machine.").Max(4096)
	s.Other("concurrency", auto, concurrencyForm(), concurrencyDoc)
	one := s.Section("custom_reward_function", "The only function of a reward.")
	pathKeys(&one.Set)
	var rest keys.Set
	functionKeys(&rest, new(ComponentConfig))
	placementDocs(&rest)
	rest.Other("reward_kwargs", "", "options", "Arguments of the function, or options of the scorer.")
	rest.Bool(new(bool), "steps", stepsDoc)
	rest.Other("max_concurrency", "", "1…"+strconv.Itoa(mostConcurrency), "Concurrency of a Python function, under the name that the recipe async_reward_agent uses.")
	rest.Unset()
	one.Keys = append(one.Keys, rest.Keys...)
	s.Other("reward_functions", "", "functions by name", "Functions of a reward with several components, each with the keys of reward.reward_functions.<key>.")
	s.Other("aggregation", string(rewards.WeightedSum), "weighted_sum, weighted_mean, min, max or product", "Rule that combines the values of several functions into one reward. verl-omni supports weighted_sum only.")
	s.Other("on_sample_failure", string(rewards.PolicyNone), "none, zero, group_mean or value:<number>", "Number that a trainer gets for a failed sample, beside its null score.")
	managerKeys(s.Section("reward_manager", "The reward manager of a recipe of verl. It may be left out: one function or several are told apart by themselves."))
	s.Other("models", "", "engines by name", "Engines by name, each with the keys of reward.models.<name>. A function calls the engine of its own name, or the engine named by the function's `model` key.")
	modelKeys(s.Section("reward_model", "The model that judges of this reward ask: on servers that are started here or run already, or in this process."))
	sandbox := s.Section("sandbox_fusion", "The sandbox that runs code of this reward.")
	sandbox.Other("url", "", "an address", "Address of the code sandbox. Without an address the other keys of the sandbox have no effect.")
	sandbox.Other("max_concurrent", "", "1 or more", "Number of programs that run in the sandbox at a time.")
	sandbox.Other("memory_limit_mb", "", "1 or more", "Memory of one program in the sandbox, in MB.")
	target(&sandbox.Set)
	s.Keys = append(s.Keys, unset(func(k *keys.Set) {
		k.Other("reward_fn_key", "data_source", "data_source or extra_info.<name>", "Field of a sample whose value selects functions: those whose when has the value.")
		k.Other("group_by", "uid", "uid or prompt", "Field by which samples form a prompt group: the uid, or the prompt for samples without uid.")
		k.Other("verify", "", "tools by name", "Verify tools that examine a sample before scoring, each with kind ("+strings.Join(verifyKinds(), ", ")+"), required (true), timeout and its own options.")
		k.Other("compute_score_kwargs", "", "", "")
		target(k)
	})...)
	over := s.Section("reward_kwargs", "The penalty of verl's dapo manager for responses near their limit.")
	over.Other("max_resp_len", "", "1 or more", "Maximum length of a response, in tokens.")
	over.Section("overlong_buffer_cfg", "The penalty itself.", keys.Func(func(k *keys.Set) { new(Overlong).bufferKeys(k, new(bool)) })).Set.Unset()
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
	k.Other("path", "", "builtin://<scorer>, scorer://<model>, a Python file, pkg://<module>, http(s)://… or onnx://<model>", "Scorer of the component.")
	k.Other(acceptKey, "", "a licence", "SPDX name of the licence that you accept for a scorer://<model> that is not free for every use. Without the name the configuration is refused.")
	k.Text(new(string), "name", defaultFunction, "Name of the function or class in the Python file or module.")
}

const stepsDoc = "Declares that the scorer returns a score for each reasoning or denoising step of a sample (process rewards)."

// functionKeys adds what every function of a reward may say besides its path and the options of
// its scorer.
func functionKeys(k *keys.Set, t *ComponentConfig) {
	k.Duration(&t.Timeout, "timeout", rewards.DefaultComponentTimeout, "Time limit for one sample, retries included. Left out: loop.component_timeout. At most loop.claim_timeout.").Min(time.Millisecond)
	k.Int(&t.Retries, "retries", 0, "Number of retries after a failure of the function, or of a service that the function calls.").Max(20)
	k.Other("concurrency", auto, concurrencyForm(), "Maximum number of concurrent calls of the scorer in this process; for a Python function, in each of its processes. auto: as many as the CPUs, processes or engine behind the scorer can run.")
	k.Other("invalid_values", "", "numbers", "Scores that mean failure, such as [-999, -1].")
	k.Other("when", "", "texts", "Samples that the function scores, by the value of reward_fn_key. Left out: all samples.")
	k.Other("clip", "", "[least, largest]", "Bounds of the scorer's value, before scale.")
	k.Other("scale", "1", numberForm+" that is not 0", "Factor applied to the value, after clip.")
	k.Other("min_members", "2", "1 or more, or all", "Minimum number of members of a prompt group that a scorer of whole groups needs.")
	k.Other("extra_keys", "", "number, bool or string by name", "Names and types of the scalars that a Python function returns besides the score. Left out: the scalars of the first successful call.")
	k.Other("pixels", "auto", "auto, numpy, torch, pil or path", "Form of pictures and videos for a Python function. auto: torch if the module has imported torch, else NumPy. path: a PNG, AVI, WAV or NPY file, removed after the call.")
	k.Other("frames", "all", "all, first, every:<n>, fps:<rate> or uniform:<n>", "Frames of a video that a Python function gets; other scorers have a frames option of their own.")
	k.Other("memory", "", "a size", "Limit on resident memory of a process of a Python function with its child processes. Left out: pool.python.memory.")
	k.Other("env", "", "names of variables", "Environment variables that a Python function sees. Left out: all except the ones that this file reads as secrets.")
	k.Other(signatureKey, "", "one of "+strings.Join(python.Signatures(), ", "), "Calling form of a Python function: whole prompt groups, or batches with batch: true. Left out: one sample a call, or groups where the class has score_group.")
	k.Other("reference", "", "ground_truth, or a path below ground_truth or extra_info", "Field with a reference answer, which the server adds as one more member to each group of validation for a Python function of whole prompt groups. Example: extra_info.y.0.content.")
	k.Other("interpreter", "", "a program", "Python interpreter of the function, such as envs/hpsv3/bin/python of an environment of its own. Left out: pool.python.interpreter.")
	k.Other("environment", "", "{python, requirements, system_site_packages}", "Python environment of the function, in place of interpreter: python (version or path), requirements (file or list), system_site_packages. `rewardloop env make -c FILE` makes the environment.")
	k.Other("probe", "true", "true, false or kinds of sample", "Known samples that a Python function is called with at start. true: the samples that the parameters of the function need.")
}

// placementDocs explains the keys of a model in Python. They are read by takePython, and only where
// the scorer is one: others have options with the same names.
func placementDocs(k *keys.Set) { k.Keys = append(k.Keys, unset(new(python.Placement).Keys)...) }

// entryKeys adds what an entry of reward_functions may say besides that.
func entryKeys(k *keys.Set, t *ComponentConfig) {
	k.Other("weight", "1", numberForm, "Weight of the value in the aggregation.")
	k.Bool(&t.Required, "required", "Fails the sample if this function fails.")
	k.Other("on_failure", "", "group_mean, fail, zero or value:<number>", "Value in place of a failed one that is not required. Left out: group_mean for a sample with a prompt group, else fail. zero is verl-omni's behaviour.")
	k.Other("post_process", "", "a key of reward_functions", "Python class, in place of path, whose post_process_scores computes the values of a group from the values of the members.")
}

// entrySection is what stands below reward.reward_functions.<key>, besides the options of the
// scorer.
func entrySection() *keys.Section {
	s := &keys.Section{Name: "reward.reward_functions.<key>", Doc: "One of several functions. What stands beside these keys are the options of its scorer (`rewardloop scorers`), or what a Python function is called with."}
	pathKeys(&s.Set)
	functionKeys(&s.Set, new(ComponentConfig))
	placementDocs(&s.Set)
	s.Other("steps", "false", "true or false", stepsDoc)
	entryKeys(&s.Set, new(ComponentConfig))
	return s
}

func managerKeys(s *keys.Section) {
	s.Other("source", "", "register or importlib", "Module in which verl looks for the reward manager. No effect here.")
	s.Other("name", "", "MultiVisualRewardManager, VisualRewardManager, naive or dapo", "Reward manager. dapo adds the penalty of reward_kwargs.")
	s.Keys = append(s.Keys, unset(target)...)
	module := s.Section("module", "Where verl imports a manager from.")
	module.Other("path", "", "pkg://verl_omni.reward_loop.reward_manager…", "Path of the reward manager; verl-omni's managers only. No effect here.")
	module.Keys = append(module.Keys, unset(func(k *keys.Set) {
		k.Other("name", "", "a manager of verl-omni", "No effect here; verl-omni reads the key.")
		target(k)
	})...)
}

func modelKeys(s *keys.Section) {
	s.Bool(new(bool), "enable", "Has the judges of this reward call the model.")
	s.Bool(new(bool), "enable_resource_pool", "Reserves a pool of n_gpus_per_node GPUs of this machine for models with device: cuda.")
	s.Int(new(int), "n_gpus_per_node", defaultPerNode, "Number of GPUs of each machine in the pool.")
	s.Int(new(int), "nnodes", 0, "Number of machines in the pool. A process has to be started on each machine.")
	s.Other("model_path", "", "a name", "Name of the model at the engine; with name: onnx, the name or the folder of the model.")
	s.Keys = append(s.Keys, unset(target)...)
	rolloutKeys(s.Section("rollout", "The engine of the reward_model. The other keys of verl's rollout say how an engine is started; for one that runs already they have no effect."))
}

// rolloutKeys are those of verl's RolloutConfig as its reward.yaml lists them, and
// ours: base_urls, the addresses of engines that run already, and how they are asked.
func rolloutKeys(s *keys.Section) {
	s.Other("name", "", "external, onnx, vllm, sglang or transformers", "Engine. external: servers that run already. onnx: the model runs in this process's pool. Other engines are started by each process with workers.")
	for _, name := range parallelKeys() {
		s.Int(new(int), name, 1, "Number of GPUs over which one server of the engine is spread.").Between(1, math.MaxInt16)
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
	f := s.Section("profiler", "Profiles in chosen training steps: of the engine, where it is started here, and of the processes of Python rewards.")
	f.Bool(new(bool), "enable", "Switches profiles on.")
	f.Other("tool", "", "torch or nsys", "Profiler. torch: PyTorch's profiler in the process. nsys: the engine runs under NVIDIA's Nsight Systems.")
	f.Other("ranks", "", "numbers", "Numbers, from 0, of the servers of the engine and of the processes of each Python reward that are profiled.")
	f.Bool(new(bool), "all_ranks", "Profiles all servers and processes.")
	f.Other("save_path", profilesFolder, "a folder", "Folder for profiles.")
	f.Other("tool_config", "", "", "")
	f.Keys = append(f.Keys, unset(func(k *keys.Set) {
		k.Other("steps", "[1]", "numbers", "Training steps that are profiled.")
		target(k)
	})...)
	s.Keys = append(s.Keys, unset(func(k *keys.Set) {
		baseURLs(k)
		localModel(k)
		new(Managed).Keys(k)
		newEngine("").Keys(k)
		target(k)
	})...)
}

func baseURLs(k *keys.Set) {
	k.Other("base_urls", "", "addresses", "Addresses of the servers of an engine, such as [http://127.0.0.1:8000].")
}

func localModel(k *keys.Set) {
	k.Other("device", "cpu", "cpu, cuda or cuda:<n>", "Device of a model that runs in this process's pool. cuda: every GPU of the pool.")
	k.Other("fraction", "", "more than 0, at most 1", "Share of each GPU's memory that the model gets, from 0 to 1.")
}

// engineSection is what stands below engines.<name>.
func engineSection() *keys.Section {
	s := &keys.Section{Name: "engines.<name>", Doc: "Servers that answer alike, which judges ask, or a model that runs here."}
	baseURLs(&s.Set)
	s.Other("model", "", "a name", "Name of the model at the servers.")
	newEngine("").Keys(&s.Set)
	s.Other("onnx", "", "a name or a folder", "Folder or name of a model that runs in this process's pool, in place of base_urls.")
	localModel(&s.Set)
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
