package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const quickstartText = `
Writes a first configuration for a trainer, with a comment on each line that you
are likely to change. quickstart also prints how to start the server, what to
paste into the command or the code of the trainer, and the address of the status
page. Nothing is downloaded or started.

An existing file is overwritten only with --force.`

// starter is what a trainer needs for a first reward.
type starter struct {
	name     string
	pictures bool   // it trains on pictures, else on text
	listen   string // the address that the trainer's own client expects; "": the default
	paste    string // into the trainer's command or code, with %URL% and %WS% for the server's addresses
	page     string // of the documents
}

const (
	recipes = "docs/recipes/"
	// streamed is the environment that the adapters in Python read.
	streamed = "export REWARDLOOP_URL=%WS%\n"
)

// starters are the trainers, in the order of the README's table.
func starters() []starter {
	return []starter{
		{name: "verl", page: "docs/verl.md", paste: "reward.custom_reward_function.path=pkg://rewardloop.verl\nreward.custom_reward_function.name=compute_score\n+reward.custom_reward_function.reward_kwargs.url=%WS%\n"},
		{name: "verl-omni", pictures: true, page: "docs/verl.md", paste: "++actor_rollout_ref.rollout.agent.agent_loop_manager_class=rewardloop.verl.DiffusionAgentLoopManager\n+reward.rewardloop.url=%WS%\nreward.reward_model.enable=False\n"},
		{name: "flow_grpo", pictures: true, listen: "127.0.0.1:18086", page: "docs/adopt.md", paste: "# nothing: its deqa_score_remote posts to this address\n"},
		{name: "deepgen_rl", pictures: true, listen: "127.0.0.1:18082", page: "docs/adopt.md", paste: "export OCR_URL=127.0.0.1:18082/scorers/default\n"},
		{name: "trl", page: recipes + "trl.md", paste: streamed + "# in the script\nfrom rewardloop.trl import Reward\ntrainer = GRPOTrainer(reward_funcs=[Reward()], ...)\n"},
		{name: "ms-swift", page: recipes + "ms-swift.md", paste: streamed + "# plugin.py\nimport rewardloop.ms_swift\nrewardloop.ms_swift.register()\n# in the command\n--external_plugins plugin.py --reward_funcs rewardloop\n"},
		{name: "slime", page: recipes + "slime.md", paste: streamed + "# in the command\n--custom-rm-path rewardloop.slime.reward\n"},
		{name: "openrlhf", page: recipes + "openrlhf.md", paste: streamed + "# reward_func.py\nfrom rewardloop.openrlhf import reward_func\n# in the command\n--reward.remote_url reward_func.py\n"},
		{name: "areal", page: recipes + "areal.md", paste: streamed + "# in trainer.train(...)\nworkflow=\"rewardloop.areal.RLVRWorkflow\"\n"},
		{name: "roll", page: recipes + "roll.md", paste: streamed + "# in the pipeline's YAML\nrewards:\n  rewardloop: {worker_cls: rewardloop.roll.RewardLoopWorker, tag_included: [gsm8k]}\n"},
		{name: "nemo-rl", page: recipes + "nemo-rl.md", paste: streamed + "# before main() of a copy of run_grpo.py\nimport rewardloop.nemo_rl\nrewardloop.nemo_rl.register()\n# in its YAML\ndata: {default: {env_name: rewardloop}}\nenv: {rewardloop: {profile: \"\"}}\n"},
		{name: "skyrl", page: recipes + "skyrl.md", paste: streamed + "# in a copy of main_multiply.py, in the place of register(...)\nimport rewardloop.skyrl\nrewardloop.skyrl.register()\n# in the command\nenvironment.env_class=rewardloop\n"},
		{name: "flow-factory", pictures: true, page: recipes + "flow-factory.md", paste: streamed + "# in its YAML\nrewards:\n  - {name: default, reward_model: rewardloop.flow_factory.PointwiseReward, async_reward: true}\n"},
		{name: "unirl", pictures: true, page: recipes + "unirl.md", paste: streamed + "# in the recipe, as the backend of its reward service\n_target_: rewardloop.unirl.Scorer\nconfig: {_target_: rewardloop.unirl.ScorerSpec, profile: \"\", input_kind: image}\n"},
		{name: "diffusers", pictures: true, page: recipes + "diffusers.md", paste: streamed + "# in the loop\nfrom rewardloop.diffusers_style import Reward\nscores, _ = Reward()(images, prompts, metadata)\n"},
	}
}

func starterNames() (names []string) {
	for _, s := range starters() {
		names = append(names, s.name)
	}
	return names
}

const textStart = `# A first reward for %NAME%. rewardloop config check -c FILE says what each key does here.
reward:
  reward_functions:
    # How many words a response shares with its reference answer (0 to 1). rewardloop scorers lists the others;
    # a Python file of yours stands here as path: my_reward.py.
    answer: {path: "builtin://f1", weight: 1.0, required: true}
`

const pictureStart = `# A first reward for %NAME%. rewardloop config check -c FILE says what each key does here.
reward:
  reward_functions:
    # The text in double quotes of the prompt must be in the picture (0 to 1). rewardloop doctor says what this
    # machine lacks for it; rewardloop scorers lists the others, and a Python file of yours stands here as path: my_reward.py.
    text: {path: "builtin://ocr", weight: 1.0, required: true}
    # Minus the size of the picture as a JPEG, in units of 500 KB: with a small weight it stops ever noisier pictures.
    size: {path: "builtin://jpeg_compressibility", weight: 0.1}
`

// commonStart follows both.
const commonStart = `# For other machines: listen on 0.0.0.0 with --listen and --token-file (docs/configuration.md, server).
server:
  listen: %LISTEN%
`

func quickstartCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quickstart --for TRAINER", GroupID: groupPrepare, Args: nothingElse, DisableFlagsInUseLine: true,
		Short: "write a first configuration for a trainer, and print what to paste",
		Long:  quickstartText, Example: "rewardloop quickstart --for trl -o rewardloop.yaml",
	}
	trainer := cmd.Flags().String("for", "", "name of the `trainer`: "+strings.Join(starterNames(), ", "))
	out := cmd.Flags().StringP("output", "o", "rewardloop.yaml", "output `file`")
	force := cmd.Flags().Bool("force", false, "overwrite an existing file")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(starterNames(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	cmd.RunE = func(*cobra.Command, []string) error {
		all := starters()
		at := slices.IndexFunc(all, func(s starter) bool { return s.name == *trainer })
		if at < 0 {
			return wrong(fmt.Errorf("--for %q: want one of %s", *trainer, strings.Join(starterNames(), ", ")))
		}
		return quickstart(e, all[at], *out, *force)
	}
	return cmd
}

// defaultListen is server.listen where nobody has written it.
const defaultListen = "127.0.0.1:8080"

func quickstart(e *env, s starter, path string, force bool) error {
	listen := s.listen
	if listen == "" {
		listen = defaultListen
	}
	filled := strings.NewReplacer("%NAME%", s.name, "%LISTEN%", listen, "%URL%", "http://"+listen, "%WS%", "ws://"+listen)
	text := textStart
	if s.pictures {
		text = pictureStart
	}
	mode := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if force {
		mode = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o644) //nolint:gosec // it has no secret, and others may read it
	if errors.Is(err, fs.ErrExist) {
		return failed(fmt.Errorf("%s exists already: name another file with -o, or overwrite it with --force", path))
	} else if err != nil {
		return failed(err)
	}
	_, err = filled.WriteString(f, text+commonStart)
	if err = errors.Join(err, f.Close()); err != nil {
		return failed(err)
	}
	steps := filled.Replace("wrote " + path + "\n\nStart the server:\n\n  rewardloop serve -c " + path + "\n\nPaste for " + s.name + ":\n\n  " +
		strings.ReplaceAll(strings.TrimSpace(s.paste), "\n", "\n  ") +
		"\n\nLook at http://%LISTEN%/ while it trains. " + s.page + " says more.\n")
	if _, err := fmt.Fprint(e.stdout, steps); err != nil {
		return failed(err)
	}
	return nil
}
