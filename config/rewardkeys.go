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
	s.Int(new(int), "num_workers", 8, "Reward-loop workers of this process, of all its rewards together. With a reward_model on a pool of cards the default is one for each engine that fits on those of a machine.").Max(4096)
	s.Other("concurrency", auto, concurrencyForm(), concurrencyDoc)
	one := s.Section("custom_reward_function", "The only function of a reward.")
	pathKeys(&one.Set)
	var rest keys.Set
	functionKeys(&rest, new(ComponentConfig))
	placementDocs(&rest)
	rest.Other("reward_kwargs", "", "options", "What the function is called with, or the options of the scorer.")
	rest.Bool(new(bool), "steps", stepsDoc)
	rest.Other("max_concurrency", "", "1…"+strconv.Itoa(mostConcurrency), "The concurrency of a Python function in the words of the recipe async_reward_agent.")
	rest.Unset()
	one.Keys = append(one.Keys, rest.Keys...)
	s.Other("reward_functions", "", "functions by name", "The functions of a reward of several, each with the keys of reward.reward_functions.<key>.")
	s.Other("aggregation", string(rewards.WeightedSum), "weighted_sum, weighted_mean, min, max or product", "How the values of several functions become one. verl-omni knows weighted_sum only.")
	s.Other("on_sample_failure", string(rewards.PolicyNone), "none, zero, group_mean or value:<number>", "What stands beside the null score of a failed sample.")
	managerKeys(s.Section("reward_manager", "The reward manager of a recipe of verl. It may be left out: one function or several are told apart by themselves."))
	s.Other("models", "", "engines by name", "Engines that functions ask by name, each with the keys of reward.models.<name>. A function asks the one of its own name, or of its key model.")
	modelKeys(s.Section("reward_model", "The model that judges of this reward ask: on servers that are started here or run already, or in this process."))
	sandbox := s.Section("sandbox_fusion", "The sandbox that runs code of this reward.")
	sandbox.Other("url", "", "an address", "Where the sandbox is asked. Without it the other keys have no effect.")
	sandbox.Other("max_concurrent", "", "1 or more", "Programs that run in the sandbox at a time.")
	sandbox.Other("memory_limit_mb", "", "1 or more", "Memory of one program in the sandbox, in MB.")
	target(&sandbox.Set)
	s.Keys = append(s.Keys, unset(func(k *keys.Set) {
		k.Other("reward_fn_key", "data_source", "data_source or extra_info.<name>", "The field of a sample whose value chooses among functions by their when.")
		k.Other("group_by", "uid", "uid or prompt", "What makes a group of samples: their uid, or, without one, their prompt.")
		k.Other("verify", "", "tools by name", "Tools that look at a sample before it is scored, each with kind ("+strings.Join(verifyKinds(), ", ")+"), required (true), timeout and its own options.")
		k.Other("compute_score_kwargs", "", "", "")
		target(k)
	})...)
	over := s.Section("reward_kwargs", "The penalty of verl's dapo manager for responses near their limit.")
	over.Other("max_resp_len", "", "1 or more", "The longest response, in tokens.")
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
	k.Other("path", "", "builtin://<scorer>, scorer://<model>, a Python file, pkg://<module>, http(s)://… or onnx://<model>", "What scores samples.")
	k.Other(acceptKey, "", "a licence", "The licence, by its SPDX name, that you agree to for a scorer://<model> that is not free for every use. It is refused by name without.")
	k.Text(new(string), "name", defaultFunction, "The function or class of a Python file or module.")
}

const stepsDoc = "The scorer gives step scores (process rewards)."

// functionKeys adds what every function of a reward may say besides its path and the options of
// its scorer.
func functionKeys(k *keys.Set, t *ComponentConfig) {
	k.Duration(&t.Timeout, "timeout", rewards.DefaultComponentTimeout, "One sample, retries included. Left out: loop.component_timeout. At most loop.claim_timeout.").Min(time.Millisecond)
	k.Int(&t.Retries, "retries", 0, "How many more times the function is called whose failure is its own or that of a service it asks.").Max(20)
	k.Other("concurrency", auto, concurrencyForm(), "Calls of the scorer that this process executes at a time; of a Python function, calls of one of its processes. auto: as many as what executes them can.")
	k.Other("invalid_values", "", "numbers", "Scores that mean failure, such as [-999, -1].")
	k.Other("when", "", "texts", "The samples that the function is for, by the value of reward_fn_key. Left out: all.")
	k.Other("clip", "", "[least, largest]", "Bounds of the scorer's value, before scale.")
	k.Other("scale", "1", numberForm+" that is not 0", "What the value is multiplied with, after clip.")
	k.Other("min_members", "2", "1 or more, or all", "Members of a prompt group that a scorer of whole groups needs.")
	k.Other("extra_keys", "", "number, bool or string by name", "The scalars besides the score that a Python function returns. Left out: those of its first success.")
	k.Other("pixels", "auto", "auto, numpy, torch, pil or path", "In what a Python function gets pictures and videos. auto: torch if its module has imported it, else NumPy. path: the path of a PNG, AVI, WAV or NPY file, which is removed after the call.")
	k.Other("frames", "all", "all, first, every:<n>, fps:<rate> or uniform:<n>", "Which frames of a video a Python function gets; those of other scorers are an option of their own.")
	k.Other("memory", "", "a size", "Resident memory of a process of a Python function and all that it starts. Left out: pool.python.memory.")
	k.Other("env", "", "names of variables", "The variables of the environment that a Python function sees. Left out: all but those that this file reads as secrets.")
	k.Other(signatureKey, "", "one of "+strings.Join(python.Signatures(), ", "), "The form in which a Python function is called: with whole prompt groups, or with batch: true in batches. "+
		"Left out: it scores one sample, or groups where its class has score_group.")
	k.Other("reference", "", "ground_truth, or a path below ground_truth or extra_info", "Where the reference answer stands that a Python function of whole prompt groups compares with in validation, such as extra_info.y.0.content.")
	k.Other("interpreter", "", "a program", "The Python of a function, such as that of an environment of its own, envs/hpsv3/bin/python. Left out: pool.python.interpreter.")
	k.Other("environment", "", "{python, requirements, system_site_packages}", "In place of interpreter: the environment of a Python function, which `rewardloop env make -c FILE` makes. python: a version such as \"3.11\", or a path. "+
		"requirements: a requirements file beside this file, or a list of its lines. system_site_packages: true shows it what its Python has, such as torch.")
	k.Other("probe", "true", "true, false or kinds of sample", "The known samples that a Python function is called with at start. true: those that its parameters name.")
}

// placementDocs explains the keys of a model in Python. They are read by takePython, and only where
// the scorer is one: others have options with the same names.
func placementDocs(k *keys.Set) { k.Keys = append(k.Keys, unset(new(python.Placement).Keys)...) }

// entryKeys adds what an entry of reward_functions may say besides that.
func entryKeys(k *keys.Set, t *ComponentConfig) {
	k.Other("weight", "1", numberForm, "What the value counts in the aggregation.")
	k.Bool(&t.Required, "required", "The failure of this function is the failure of the sample.")
	k.Other("on_failure", "", "group_mean, fail, zero or value:<number>", "What stands in for a failed value that is not required. Left out: group_mean for a sample that has a prompt group, else fail. verl-omni adds 0: zero.")
	k.Other("post_process", "", "a key of reward_functions", "In place of path: the values are what that Python class's post_process_scores makes of its values for every group.")
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
	s.Other("source", "", "register or importlib", "Where verl looks for the manager. It has no effect.")
	s.Other("name", "", "MultiVisualRewardManager, VisualRewardManager, naive or dapo", "dapo adds the penalty of reward_kwargs.")
	s.Keys = append(s.Keys, unset(target)...)
	module := s.Section("module", "Where verl imports a manager from.")
	module.Other("path", "", "pkg://verl_omni.reward_loop.reward_manager…", "verl-omni's managers only. It has no effect.")
	module.Keys = append(module.Keys, unset(func(k *keys.Set) {
		k.Other("name", "", "a manager of verl-omni", "It has no effect.")
		target(k)
	})...)
}

func modelKeys(s *keys.Section) {
	s.Bool(new(bool), "enable", "Judges of this reward ask the model.")
	s.Bool(new(bool), "enable_resource_pool", "Models with device: cuda run on a pool of n_gpus_per_node cards of this machine.")
	s.Int(new(int), "n_gpus_per_node", defaultPerNode, "Cards of each machine in the pool.")
	s.Int(new(int), "nnodes", 0, "Machines of the pool; on each of them a process is to be started.")
	s.Other("model_path", "", "a name", "The name that the engine knows its model by; with name: onnx, the name or the folder of the model.")
	s.Keys = append(s.Keys, unset(target)...)
	rolloutKeys(s.Section("rollout", "The engine of the reward_model. The other keys of verl's rollout say how an engine is started; for one that runs already they have no effect."))
}

// rolloutKeys are those of verl's RolloutConfig as its reward.yaml lists them, and
// ours: base_urls, the addresses of engines that run already, and how they are asked.
func rolloutKeys(s *keys.Section) {
	s.Other("name", "", "external, onnx, vllm, sglang or transformers", "external: servers that run already; onnx: the model runs in this process's pool; the others are started by each process with workers, with these keys.")
	for _, name := range parallelKeys() {
		s.Int(new(int), name, 1, "Cards that one server of the engine is spread over.").Between(1, math.MaxInt16)
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
	f.Bool(new(bool), "enable", "Profiles are made.")
	f.Other("tool", "", "torch or nsys", "torch: PyTorch's profiler in the process. nsys: NVIDIA's Nsight Systems, under which the engine is started.")
	f.Other("ranks", "", "numbers", "The servers of the engine, and the processes of each Python reward, that are profiled, from 0.")
	f.Bool(new(bool), "all_ranks", "All servers and processes are profiled.")
	f.Other("save_path", profilesFolder, "a folder", "Where the profiles are written.")
	f.Other("tool_config", "", "", "")
	f.Keys = append(f.Keys, unset(func(k *keys.Set) {
		k.Other("steps", "[1]", "numbers", "The training steps that are profiled.")
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
	k.Other("base_urls", "", "addresses", "Where the servers of an engine listen, such as [http://127.0.0.1:8000].")
}

func localModel(k *keys.Set) {
	k.Other("device", "cpu", "cpu, cuda or cuda:<n>", "Where a model runs that is run here. cuda: on every card of the pool.")
	k.Other("fraction", "", "more than 0, at most 1", "The share of each of its cards that the model has.")
}

// engineSection is what stands below engines.<name>.
func engineSection() *keys.Section {
	s := &keys.Section{Name: "engines.<name>", Doc: "Servers that answer alike, which judges ask, or a model that runs here."}
	baseURLs(&s.Set)
	s.Other("model", "", "a name", "The name that the servers know the model by.")
	newEngine("").Keys(&s.Set)
	s.Other("onnx", "", "a name or a folder", "In place of base_urls: the model runs in this process's pool.")
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
