package main

import (
	"context"
	"path"
	"regexp"
	"strings"
)

var (
	testName    = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)(?:[A-Z…]\w*)?(?:…\w*)*$`)
	bareFlag    = regexp.MustCompile(`^--([a-z][a-z0-9_.-]*)`)
	builtin     = regexp.MustCompile(`builtin://(\w+)`)
	environment = regexp.MustCompile(`\bREWARDLOOP_[A-Z][A-Z_]*[A-Z]\b`)
	metricName  = regexp.MustCompile(`\brewardloop_[a-z_]*[a-z]\b`)
	suffix      = regexp.MustCompile(`\.(?:go|py|md|sh|json|jsonl|yaml|yml|txt|toml|onnx|pem)$`)
)

// spans checks the code within sentences.
func (c *checker) spans(context.Context) error {
	for _, name := range c.tree.paths() {
		p := c.tree.pages[name]
		for _, s := range p.spans {
			c.span(name, s)
		}
		for _, b := range p.blocks {
			n := b.line
			for line := range strings.Lines(b.text) {
				c.names(name, n, line)
				n++
			}
		}
	}
	return nil
}

func (c *checker) span(name string, s span) {
	c.count.names++
	c.names(name, s.line, s.text)
	first, _, _ := strings.Cut(s.text, " ")
	switch {
	case testName.MatchString(s.text):
		c.test(name, s)
	case bareFlag.MatchString(s.text):
		c.anyFlag(name, s)
	case first == "make" || first == "rewardloop" || first == "bin/rewardloop" || first == "python" || first == "python3" || strings.HasPrefix(s.text, "go run "):
		if first == s.text && first != "rewardloop" {
			return // The program's name alone.
		}
		text, _, _ := strings.Cut(s.text, "…")
		if head, _, alternatives := strings.Cut(text, "|"); alternatives {
			text = head
		}
		for _, cmd := range split(text, s.line).commands {
			c.command(name, cmd)
		}
	default:
		c.path(name, s.line, s.text)
	}
}

// names checks what has a form of its own wherever it stands: rewards, variables of the
// environment.
func (c *checker) names(name string, line int, text string) {
	for _, m := range builtin.FindAllStringSubmatch(text, -1) {
		c.count.names++
		if !c.tree.scorers[m[1]] && !c.excused(name, m[0]) {
			c.wrong(name, line, "no reward is called %q: rewardloop scorers lists them", m[1])
		}
	}
	for _, v := range environment.FindAllString(text, -1) {
		c.count.names++
		if !c.inSources(v) && !c.excused(name, v) {
			c.wrong(name, line, "nothing reads the variable %s", v)
		}
	}
}

func (c *checker) inSources(text string) bool {
	for file, source := range c.tree.sources {
		if !strings.HasPrefix(file, "tools/docscheck/") && strings.Contains(source, text) {
			return true
		}
	}
	return false
}

// catalogue is the page of all metrics, which a test holds to the code.
const catalogue = "docs/metrics.md"

// metrics wants the names of metrics to be in the catalogue; what else begins with the
// project's name, such as a column of the Python client's, stands whole in the code.
func (c *checker) metrics(context.Context) error {
	known := map[string]bool{}
	if p := c.tree.pages[catalogue]; p != nil {
		for _, s := range p.spans {
			for _, metric := range metricName.FindAllString(s.text, -1) {
				known[metric] = true
			}
		}
	}
	for _, name := range c.tree.paths() {
		look := func(line int, text string) {
			for _, metric := range metricName.FindAllString(text, -1) {
				c.count.names++
				part := strings.NewReplacer("_bucket", "", "_count", "", "_sum", "").Replace(metric)
				if !known[metric] && !known[part] && !c.inSources(metric) && !c.excused(name, metric) {
					c.wrong(name, line, "no metric is called %s: %s has them all", metric, catalogue)
				}
			}
		}
		for _, s := range c.tree.pages[name].spans {
			look(s.line, s.text)
		}
		for _, b := range c.tree.pages[name].blocks {
			look(b.line, b.text)
		}
	}
	return nil
}

// test wants a test of this name, or for a name with … one that fits.
func (c *checker) test(name string, s span) {
	if strings.ContainsRune(s.text, '…') {
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(s.text), "…", `\w*`) + "$")
		for test := range c.tree.tests {
			if pattern.MatchString(test) {
				return
			}
		}
	} else if c.tree.tests[s.text] != "" {
		return
	}
	if !c.excused(name, s.text) {
		c.wrong(name, s.line, "there is no test %s: grep for what it has become", s.text)
	}
}

// anyFlag wants a flag that stands alone to be one of the binary, or of something else
// in the repository.
func (c *checker) anyFlag(name string, s span) {
	flag := strings.TrimRight(bareFlag.FindStringSubmatch(s.text)[1], ".-")
	c.count.flags++
	for _, flags := range c.tree.flags {
		if flags[flag] {
			return
		}
	}
	for file, text := range c.tree.sources {
		switch {
		case strings.HasPrefix(file, "tools/docscheck/"):
		case strings.HasSuffix(file, ".go"):
			if strings.Contains(text, `"`+flag+`", `) && strings.Contains(text, `"flag"`) {
				return
			}
		case strings.Contains(text, "--"+flag):
			return
		}
	}
	if !c.excused(name, "--"+flag) {
		c.wrong(name, s.line, "nothing here has a flag --%s", flag)
	}
}

// path wants a file where a word begins with a folder of the repository.
func (c *checker) path(name string, line int, word string) {
	word = strings.TrimRight(strings.TrimPrefix(word, "./"), ".,;:")
	top, rest, found := strings.Cut(word, "/")
	if !found || !c.tree.folders[top] || strings.ContainsAny(word, " ()$=\"") || rest == "..." {
		return
	}
	c.count.names++
	word, _, _ = strings.Cut(strings.TrimSuffix(word, "/..."), "#")
	if at, number, numbered := strings.Cut(word, ":"); numbered && strings.Trim(number, "0123456789-") == "" {
		word = at
	}
	if c.tree.exists(word) || c.tree.exists(path.Join(path.Dir(name), word)) || c.ignored(word) {
		return
	}
	if !c.excused(name, word) {
		c.wrong(name, line, "there is no %s: name the file it has become, or take it out of the page", word)
	}
}

// ignored says whether git ignores a path, such as bin/rewardloop: something makes it.
func (c *checker) ignored(word string) bool {
	_, err := output(context.Background(), c.tree.root, "git", "check-ignore", "-q", word)
	return err == nil
}
