package main

import (
	"context"
	"path"
	"regexp"
	"strings"
)

// commands checks the commands of every block of shell.
func (c *checker) commands(context.Context) error {
	for _, name := range c.tree.paths() {
		for _, b := range c.tree.pages[name].blocks {
			if !isShell(b.language) {
				continue
			}
			for _, cmd := range split(shellText(b), b.line).commands {
				c.command(name, cmd)
				if cmd.words[0] == "cd" && len(cmd.words) == 2 {
					c.folder = path.Join(c.folder, cmd.words[1])
				}
			}
			c.folder = ""
		}
	}
	return nil
}

func isShell(language string) bool {
	return language == "sh" || language == "bash" || language == "console"
}

// shellText is what a block has a shell do; of a console's lines those after a prompt.
func shellText(b block) string {
	if b.language != "console" {
		return b.text
	}
	var out strings.Builder
	for line := range strings.Lines(b.text) {
		if typed, is := strings.CutPrefix(line, "$ "); is {
			out.WriteString(typed)
		} else {
			out.WriteString("\n")
		}
	}
	return out.String()
}

// command checks one command by what it calls.
func (c *checker) command(name string, cmd command) {
	c.count.commands++
	program := path.Base(cmd.words[0])
	args := cmd.words[1:]
	switch program {
	case "rewardloop":
		c.rewardloop(name, cmd.line, args)
	case "make":
		c.makes(name, cmd.line, args)
	case "go":
		c.goCommand(name, cmd.line, args)
	case "python", "python3":
		c.python(name, cmd.line, args)
	default:
		switch {
		case c.tree.files[cmd.words[0]]:
		case strangers()[program] != "":
			c.count.excused++
		default:
			c.wrong(name, cmd.line, "this project does not know the command %q: mend the command, or add it to strangers in tools/docscheck/reasons.go with its reason", program)
			return
		}
	}
	for _, word := range args {
		c.path(name, cmd.line, word)
	}
}

var override = regexp.MustCompile(`^[+~]{0,2}([a-z_]+(?:\.[a-z0-9_<>-]+)+)(=.*)?$`)

// rewardloop checks a command of the binary: its name, its flags, what it is asked for.
func (c *checker) rewardloop(name string, line int, args []string) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || placeholder.MatchString(args[0]) {
		return
	}
	verb := args[0]
	flags, known := c.tree.flags[verb]
	if !known {
		if !c.excused(name, "rewardloop "+verb) {
			c.wrong(name, line, "rewardloop has no command %q: see rewardloop --help", verb)
		}
		return
	}
	for i, arg := range args[1:] {
		flag, isFlag := strings.CutPrefix(arg, "-")
		flag, _, _ = strings.Cut(strings.TrimPrefix(flag, "-"), "=")
		if arg == "--" {
			return // what stands behind it is another program's
		}
		switch {
		case isFlag && flag != "":
			c.count.flags++
			if !flags[flag] {
				c.wrong(name, line, "rewardloop %s has no flag --%s: see rewardloop %s --help", verb, flag, verb)
			}
		case i == 0 && (verb == "config" || verb == "models" || verb == "queue"):
			if !subcommands()[verb+" "+arg] {
				c.wrong(name, line, "rewardloop %s has no %q: see rewardloop %s --help", verb, arg, verb)
			}
		case verb == "scorers" && !c.tree.scorers[arg]:
			c.wrong(name, line, "no reward is called %q: rewardloop scorers lists them", arg)
		case verb == "models" && modelName.MatchString(arg) && !strings.HasPrefix(args[i], "-"):
			if !c.tree.models[arg] {
				c.wrong(name, line, "no model is called %q: rewardloop models list has them", arg)
			}
		}
	}
}

// modelName is what a name of the catalogue looks like, and no address or path does.
var modelName = regexp.MustCompile(`^[a-z][a-z0-9]*(?:[.-][a-z0-9]+)+$`)

// subcommands are those of the binary's commands that have some.
func subcommands() map[string]bool {
	return map[string]bool{
		"config check": true, "config print": true, "config schema": true, "queue acl": true,
		"env make": true, "env list": true, "env remove": true,
		"models list": true, "models pull": true, "models export": true, "models verify": true, "models bundle": true, "models unbundle": true,
	}
}

func (c *checker) makes(name string, line int, args []string) {
	for _, arg := range args {
		if strings.Contains(arg, "=") || strings.HasPrefix(arg, "-") {
			continue
		}
		if !c.tree.targets[arg] {
			c.wrong(name, line, "make has no target %q: see make help", arg)
		}
	}
}

// goCommand wants the package of go run and go test to be there, and the flags that a
// program of this repository is run with to be in its source.
func (c *checker) goCommand(name string, line int, args []string) {
	dir := ""
	for i, arg := range args {
		if dir != "" {
			c.flagOf(name, line, dir, arg)
			continue
		}
		if i > 0 && args[i-1] == "-C" || !strings.HasPrefix(arg, "./") || strings.HasSuffix(arg, "...") {
			continue
		}
		at := path.Clean(arg)
		if !c.tree.folders[at] && !c.excused(name, arg) {
			c.wrong(name, line, "there is no package %s", arg)
			return
		}
		if args[0] == "run" {
			dir = at
		}
	}
}

// python wants the script or the module to be there, and the script's flags in it.
func (c *checker) python(name string, line int, args []string) {
	for i, arg := range args {
		switch {
		case arg == "-m" && i+1 < len(args):
			module := args[i+1]
			file := "python/" + strings.ReplaceAll(module, ".", "/")
			if strangers()["python -m "+module] == "" && !c.tree.files[file+".py"] && !c.tree.folders[file] {
				c.wrong(name, line, "there is no Python module %q in python/: mend it, or add it to strangers in tools/docscheck/reasons.go", module)
			}
			return
		case arg == "-c" || strings.HasPrefix(arg, "-"):
			return
		case strings.HasSuffix(arg, ".py"):
			at := path.Join(c.folder, arg)
			if !c.tree.files[at] {
				at = path.Join(path.Dir(name), arg)
			}
			if !c.tree.files[at] {
				if !c.excused(name, arg) {
					c.wrong(name, line, "there is no script %s, here or below the root", arg)
				}
				return
			}
			for _, flag := range args[i+1:] {
				c.flagOf(name, line, at, flag)
			}
			return
		}
	}
}

// flagOf wants a flag in quotes in the source of a script, or of a folder's Go files.
func (c *checker) flagOf(name string, line int, at, arg string) {
	flag, _, _ := strings.Cut(arg, "=")
	if !strings.HasPrefix(flag, "-") || strings.Trim(flag, "-") == "" {
		return
	}
	c.count.flags++
	bare := strings.TrimLeft(flag, "-")
	beside := path.Dir(at) + "/common.py" // What the scripts of models/export share.
	for file, text := range c.tree.sources {
		switch {
		case file == at || file == beside && strings.HasSuffix(at, ".py"):
			if strings.Contains(text, `"`+flag+`"`) || bare == "help" {
				return
			}
		case path.Dir(file) == at && strings.HasSuffix(file, ".go"):
			if strings.Contains(text, `"`+bare+`"`) {
				return
			}
		}
	}
	c.wrong(name, line, "%s has no flag %s", at, flag)
}
