package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// mostHelp is how many characters the help of a metric and the text of a key have at most: a tool tip shows no more.
const mostHelp = 200

// openingPronoun is a word that says nothing where the text stands alone: in Grafana, in grep, in an editor.
var openingPronoun = regexp.MustCompile(`^(It|Its|They|Their|Them|This|That|These|Those|He|She|Who|Whom|Whose|What|Which|One|Ones|Such|Both|Another|Others|Some|None|Nothing|Everything|Whoever|Whatever|Same|How|Where|When)\b`)

// cellBorder parts the cells of a table's row.
var cellBorder = regexp.MustCompile(`(?:^|[^\\])\|`)

// helps looks at the tables that are written from the code: the help of each metric, and the text of each key.
func (c *checker) helps(context.Context) error {
	for page, of := range map[string]struct {
		what string
		cell int // From the end.
	}{catalogue: {"the help of", 2}, "docs/configuration.md": {"the text of", 1}} {
		if c.tree.pages[page] == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(c.tree.root, filepath.FromSlash(page)))
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			cells := cellBorder.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), -1)
			if len(cells) < 5 {
				continue
			}
			name, help := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[len(cells)-of.cell])
			if n := utf8.RuneCountInString(help); n > mostHelp {
				c.wrong(page, i+1, "%s %s has %d characters, and %d is the most: %s", of.what, name, n, mostHelp, help)
			}
			if word := openingPronoun.FindString(help); word != "" {
				c.wrong(page, i+1, "%s %s begins with %q, which says nothing where the line stands alone: begin with the noun: %s", of.what, name, word, help)
			}
		}
	}
	return nil
}
