package main

import (
	"context"
	"net/url"
	"path"
	"strings"
)

// links checks every link of every page.
func (c *checker) links(context.Context) error {
	for _, name := range c.tree.paths() {
		p := c.tree.pages[name]
		if p.unended > 0 {
			c.wrong(name, p.unended, "the block that begins here has no end: close it with ```")
		}
		for _, l := range p.links {
			if strings.Contains(l.target, "://") || strings.HasPrefix(l.target, "mailto:") {
				c.count.external++
				c.address(name, l)
				continue
			}
			c.count.links++
			c.relative(name, l)
		}
	}
	return nil
}

// relative wants a file, a folder or a heading where a link within the repository leads.
func (c *checker) relative(name string, l link) {
	target, anchor, hasAnchor := strings.Cut(l.target, "#")
	target, err := url.PathUnescape(target)
	switch {
	case err != nil:
		c.wrong(name, l.line, "the link %q is not well written: %v", l.target, err)
		return
	case l.target == "":
		c.wrong(name, l.line, "a link leads nowhere: name its target")
		return
	case strings.HasPrefix(target, "/"):
		c.wrong(name, l.line, "the link %q begins at the machine's root: write it relative to this page", l.target)
		return
	}
	at := name
	if target != "" {
		at = path.Join(path.Dir(name), target)
	}
	if !c.tree.files[at] && !c.tree.folders[at] && at != "." {
		c.wrong(name, l.line, "the link %q leads to %s, which is not there: name the file it has become, or remove the link", l.target, at)
		return
	}
	if !hasAnchor {
		return
	}
	to, isPage := c.tree.pages[at]
	if !isPage || !to.anchors[anchor] {
		c.wrong(name, l.line, "%s has no heading #%s: its headings have changed; take one of them", at, anchor)
	}
}
