package main

import "strings"

// unchecked are the languages of blocks that are not looked into, with the reason.
func unchecked() map[string]string {
	return map[string]string{
		"trainer": "a trainer's own command or configuration, which needs the trainer and its cards; make test-trainers has its code call the adapter",
		"text":    "what a program prints, or a drawing: nobody types it. Tests named in runs.go compare some with the program",
		"conf":    "read by nats-server, which this program does not bring; TestTheNATSConfigurationsOfTheDocumentsAreRead does",
		"promql":  "read by Prometheus; the names of its metrics are checked all the same",
		"http":    "the head of a request; server's tests send such ones",
	}
}

// strangers are commands that are not of this project, and modules that Python brings,
// with what they do in a document.
func strangers() map[string]string {
	return map[string]string{
		"apt-get": "Debian's packages", "bash": "runs a script", "cat": "coreutils", "cd": "the shell's",
		"chmod": "coreutils", "cp": "coreutils", "curl": "asks the server", "diff": "compares", "docker": "Compose files; tools/deploycheck reads them", "dpkg": "Debian's; make release-check runs it",
		"echo": "the shell's", "export": "the shell's", "git": "clones", "grep": "looks into a file", "head": "coreutils", "kubectl": "applies what tools/deploycheck builds",
		"mkdir": "coreutils", "mypy": "checks types in python/", "nats-server": "NATS's own program", "nvidia-cuda-mps-control": "the driver's", "nvidia-smi": "the driver's", "openssl": "draws a token",
		"pip": "installs the package of python/", "sbatch": "Slurm's; tools/deploycheck runs the script with a fake srun",
		"ruff": "checks python/", "scancel": "Slurm's", "sort": "coreutils", "systemctl": "units that tools/deploycheck verifies", "tar": "packs models", "timeout": "coreutils",
		"python -m pip": "Python's", "python -m unittest": "Python's", "python -m venv": "Python's",
	}
}

// absence is a fault that config check finds because something is not on this machine,
// whatever the document says.
type absence struct{ says, why string }

func absences() []absence {
	return []absence{
		{"no such file or directory", "keys, certificates and folders of the reader's machine"},
		{"there is no file /", "the same, by their paths"},
		{"there is no file …", "a path that the document shortens"},
		{"ModuleNotFoundError: ", "Python modules of the reader's machine"},
		{"is not a class with a method post_process_scores", "classes of the reader's files; anyFunction stands for them"},
		{"must be exported", "models that nobody offers for download"},
		{" is not complete in ", "models that the reader pulls"},
		{"the environment is not made in ", "Python environments that the reader makes"},
		{"no engine ", "engines that stand elsewhere in the reader's file"},
		{" as one set, but ", "cards of the reader's machine"},
		{"ONNX Runtime", "the library is brought by make ort"},
	}
}

// excuse lets a page say something that the tree does not have.
type excuse struct {
	page string // "": every page.
	what string // What the check found; a * at its end stands for the rest.
	why  string
}

func (e excuse) key() string { return e.page + "\x00" + e.what }

func (e excuse) covers(page, what string) bool {
	if e.page != "" && e.page != page {
		return false
	}
	if start, open := strings.CutSuffix(e.what, "*"); open {
		return strings.HasPrefix(what, start)
	}
	return e.what == what
}

// excuses are all of them. One that nothing needs is a finding.
func excuses() []excuse {
	return []excuse{
		{"docs/write-a-scorer.md", "builtin://brightness", "the scorer that the page writes; TestEveryBlockOfWriteAScorerRuns builds it"},
		{"docs/write-a-scorer.md", "reward.reward_functions.light: unknown scorer*", "the same"},
		{"docs/write-a-scorer.md", "override \"reward.reward_functions.light*", "a key of the file that the page writes before"},
		{"docs/write-a-scorer.md", "test_answer.py", "the page writes it"},
		{"examples/real_trainers/README.md", ".github/verl_pin.txt", "a file of verl-omni's own checkout"},
		{"docs/write-a-scorer.md", "cmd/lit/main.go", "the page writes it"},
		{"docs/write-a-scorer.md", "cmd/lit", "the same"},
		{"docs/write-a-scorer.md", "./cmd/lit", "the same"},
		{"docs/recipes/trl.md", "rewards/rewardloop/mean", "a curve of TRL's"},
		{"docs/recipes/ms-swift.md", "rewards/rewardloop/mean", "a curve of ms-swift's"},
		{"docs/recipes/areal.md", "try.py", "the page writes it"},
		{"docs/recipes/diffusers.md", "try.py", "the page writes it"},
		{"docs/recipes/flow-factory.md", "try.py", "the page writes it"},
		{"docs/recipes/ms-swift.md", "try.py", "the page writes it"},
		{"docs/recipes/nemo-rl.md", "try.py", "the page writes it"},
		{"docs/recipes/openrlhf.md", "try.py", "the page writes it"},
		{"docs/recipes/roll.md", "try.py", "the page writes it"},
		{"docs/recipes/skyrl.md", "try.py", "the page writes it"},
		{"docs/recipes/slime.md", "try.py", "the page writes it"},
		{"docs/recipes/trl.md", "try.py", "the page writes it"},
		{"docs/recipes/unirl.md", "try.py", "the page writes it"},
		{"docs/adopt.md", "--rm-type", "slime's"},
		{"docs/verl.md", "reward.rewardloop", "read by the plug-ins in python/rewardloop/verl, not by the server"},
		{"docs/adr/0004-assembly.md", "internal/lifecycle", "a decision speaks of the tree of its time"},
		{"docs/adr/0009-scale-out.md", "queue.shared_memory", "a decision speaks of the keys of its time"},
		{"docs/results/README.md", "workers/cost-ratio", "a figure's name, no path"},
		{"rewards/ocr/README.md", "rewards/ocr.py", "a file of another project"},
		{"rewards/ocr/tesseract/README.md", "rewardloop child", "how the binary starts its children: nobody types it, and --help does not list it"},
		{"rewards/python/README.md", "--index-url", "a line of a requirements file"},
		{"rewards/remote/README.md", "rewards.0.score", "a path into a service's answer, no key"},
		{"docs/verl.md", "hydra", "verl's own keys; make test-verl gives them to verl"},
		{"docs/adopt.md", "yaml: base_url", "UniRL's configuration, not ours; make test-clients runs its client"},
		{"docs/adopt.md", "yaml: rewards", "Flow-Factory's configuration, not ours; make test-clients runs its client"},
		{"docs/gpu.md", "yaml: version", "the configuration of NVIDIA's device plug-in"},
		{"docs/monitoring.md", "yaml: rule_files", "Prometheus' configuration; tools/deploycheck gives it to promtool"},
		{"deploy/README.md", "yaml: apiVersion", "a kustomization; tools/deploycheck builds those of the repository"},
	}
}
