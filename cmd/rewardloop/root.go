package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rewardloop/rewardloop/config"
)

// The groups of commands in rewardloop --help.
const (
	groupScore   = "score"
	groupServer  = "server"
	groupPrepare = "prepare"
	groupProgram = "program"
)

const rootText = `
rewardloop scores each finished sample while the rollout generates the others.

Usage: rewardloop COMMAND [flags] [key=value...]`

// helpWidth is the number of columns that help takes at most.
const helpWidth = 80

// newRoot is the whole command line.
func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use: "rewardloop", Long: rootText, SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
	}
	version := root.Flags().BoolP("version", "v", false, "print the version")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case *version:
			return printVersion(e, false)
		}
		_ = cmd.Help() // it only prints
		return wrong(nil)
	}
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(e.stdout, help(cmd)) })
	root.SetHelpCommand(helpCommand())
	root.AddGroup(
		&cobra.Group{ID: groupScore, Title: "Score samples:"},
		&cobra.Group{ID: groupServer, Title: "Inspect a running server:"},
		&cobra.Group{ID: groupPrepare, Title: "Prepare:"},
		&cobra.Group{ID: groupProgram, Title: "This program:"},
	)
	root.AddCommand(commands(e)...)
	root.InitDefaultHelpCmd()
	return root
}

// help is what --help of a command prints.
func help(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", strings.TrimSpace(cmd.Long))
	if cmd.HasParent() {
		fmt.Fprintf(&b, "\nUsage: %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExample:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(cmd.Example), "\n", "\n  "))
	}
	for _, g := range cmd.Groups() {
		fmt.Fprintf(&b, "\n%s\n", g.Title)
		listCommands(&b, cmd, g.ID)
	}
	if cmd.HasParent() && cmd.HasSubCommands() {
		fmt.Fprint(&b, "\nCommands:\n")
		listCommands(&b, cmd, "")
	}
	if usages := cmd.LocalFlags().FlagUsagesWrapped(helpWidth); usages != "" {
		fmt.Fprintf(&b, "\nFlags:\n%s", usages)
	}
	if !cmd.HasParent() {
		fmt.Fprint(&b, "\n`rewardloop COMMAND --help` prints details and an example. Start with\n`rewardloop demo`; `rewardloop doctor` reports what is missing.\n")
	}
	return b.String()
}

func listCommands(b *strings.Builder, of *cobra.Command, group string) {
	width := 0
	for _, c := range of.Commands() {
		width = max(width, len(c.Name()))
	}
	for _, c := range of.Commands() {
		if c.GroupID == group && c.IsAvailableCommand() {
			fmt.Fprintf(b, "  %-*s  %s\n", width, c.Name(), c.Short)
		}
	}
}

// helpCommand is help COMMAND, the same as COMMAND --help.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(of, rest[0])
			}
			of.InitDefaultHelpFlag() // --help has it by then
			return of.Help()
		},
	}
}

// parent makes a command that has subcommands only.
func parent(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	names := make([]string, len(children))
	for i, c := range children {
		names[i] = c.Name()
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			last := len(names) - 1
			list := names[last]
			if last > 0 {
				list = strings.Join(names[:last], ", ") + " or " + list
			}
			return wrong(fmt.Errorf("name %s, such as `%s %s`", list, cmd.CommandPath(), names[0]))
		}
		return unknownCommand(cmd, args[0])
	}
	return cmd
}

// unknownCommand says which commands a misspelt one may mean, in two lines.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2 // edits; cobra sets it for its own message only
	meant := cmd.SuggestionsFor(name)
	text := fmt.Sprintf("no command %q", name)
	if len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return wrong(fmt.Errorf("%s\n`%s --help` lists the commands", text, cmd.CommandPath()))
}

// oneDash refuses a long flag that is written with one dash: pflag would read its letters as
// flags, so that -config cfg.yaml were -c onfig. It also refuses --help of what is no command,
// which cobra answers with the help of the command above it.
func oneDash(root *cobra.Command, args []string) (*cobra.Command, error) {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return root, wrong(err)
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return cmd, unknownCommand(cmd, rest[0])
	}
	for _, a := range rest {
		if a == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		if strings.HasPrefix(a, "-") && len(name) > 1 && cmd.Flags().Lookup(name) != nil {
			return cmd, wrong(fmt.Errorf("write -%s with two dashes: one dash is for flags of one letter", a))
		}
	}
	return cmd, nil
}

// flagError says what is wrong with a flag, and which one may be meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var required *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("no flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if strings.Contains(name, ".") {
			return fmt.Errorf("no flag --%s: a key of the configuration has no dashes, %s=value", name, name)
		}
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
		if other := otherName(name); cmd.Flags().Lookup(other) != nil {
			return fmt.Errorf("no flag --%s; did you mean --%s?", name, other)
		}
		return fmt.Errorf("no flag --%s%s", name, config.DidYouMean("--"+name, known))
	case errors.As(err, &value):
		f := value.GetFlag()
		return fmt.Errorf("--%s %q: must be %s", f.Name, value.GetValue(), kindOf(f.Value.Type()))
	case errors.As(err, &required):
		return fmt.Errorf("--%s needs a value", required.GetFlag().Name)
	}
	return err
}

// otherName is what a flag that other programs have is called here; "": nothing.
func otherName(flag string) string {
	return map[string]string{
		"url": "server", "addr": "listen", "address": "listen", "bind": "listen", "host": "listen", "port": "listen",
		"file": "config", "in": "input", "out": "output", "token": "token-file", "format": "json",
	}[flag]
}

// kindOf says what a flag's value must be.
func kindOf(kind string) string {
	switch kind {
	case "int", "uint64":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration":
		return "a time such as 30s or 5m"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// nothingElse refuses arguments of a command that takes none.
func nothingElse(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q", args[0])
	}
	return nil
}

const completionText = `
Prints a shell script that completes commands, flags, and the names of rewards
and models. The script for bash needs the package bash-completion.

bash:  source <(rewardloop completion bash)
zsh:   rewardloop completion zsh >"${fpath[1]}/_rewardloop"
fish:  rewardloop completion fish >~/.config/fish/completions/rewardloop.fish`

func completionCommand(e *env) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", GroupID: groupProgram, ValidArgs: shells,
		Short: "print a script for shell completion",
		Long:  completionText, Example: "rewardloop completion bash",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			shell := strings.Join(args, " ")
			var err error
			switch shell {
			case "bash":
				err = cmd.Root().GenBashCompletionV2(e.stdout, true)
			case "zsh":
				err = cmd.Root().GenZshCompletion(e.stdout)
			case "fish":
				err = cmd.Root().GenFishCompletion(e.stdout, true)
			case "":
				return errors.New("name a shell: bash, zsh or fish")
			default:
				return fmt.Errorf("no completion for the shell %q: name bash, zsh or fish", shell)
			}
			if err != nil {
				return failed(err)
			}
			return nil
		},
	}
}
