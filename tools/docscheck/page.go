package main

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// page is a Markdown file, taken apart.
type page struct {
	path    string // Below the root, with slashes.
	anchors map[string]bool
	links   []link
	spans   []span
	blocks  []block
	unended int // The line of a fence that nothing closes; 0: none.
}

// link is where a page points: [text](target), ![text](target), <https://…>,
// [name]: target, src="target", and an address that stands alone.
type link struct {
	line   int
	target string
}

// span is code within a sentence.
type span struct {
	line int
	text string
}

// block is a fenced block; line is that of its first line of text.
type block struct {
	section  string // The heading above it.
	language string
	line     int
	text     string
}

var (
	fence      = regexp.MustCompile("^[ \t]*(```+|~~~+)[ \t]*([A-Za-z0-9+-]*)")
	heading    = regexp.MustCompile(`^(#{1,6})[ \t]+(.*?)[ \t]*#*$`)
	codeSpan   = regexp.MustCompile("(``+|`)(.+?)(``+|`)")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^)\s>]*)>?(?:\s+"[^"]*")?\s*\)`)
	reference  = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s*(\S+)`)
	tagSource  = regexp.MustCompile(`(?:src|href)="([^"]*)"`)
	bare       = regexp.MustCompile(`(?:https?|ftp)://[^\s<>()|"']+`)
	markup     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// readPage takes a page apart, line by line. A code span ends on the line it begins on,
// as everywhere in this repository.
func readPage(path, text string) *page {
	p := &page{path: path, anchors: map[string]bool{}}
	var (
		open    string // The fence that the block began with.
		current block
		section string
	)
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open != "" && strings.TrimSpace(line) == open:
			p.blocks = append(p.blocks, current)
			open = ""
		case open != "":
			current.text += line + "\n"
		case m != nil:
			open = m[1]
			current = block{section: section, language: m[2], line: n + 1}
			p.unended = n
		default:
			if h := heading.FindStringSubmatch(line); h != nil {
				section = h[2]
				p.anchor(h[2])
			}
			p.prose(n, line)
		}
	}
	if open == "" {
		p.unended = 0
	}
	return p
}

// prose finds the links and the code of a line.
func (p *page) prose(n int, line string) {
	for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
		p.spans = append(p.spans, span{n, strings.TrimSpace(m[2])})
	}
	line = codeSpan.ReplaceAllStringFunc(line, func(s string) string { return strings.Repeat("`", len(s)) })
	add := func(target string) { p.links = append(p.links, link{n, target}) }
	for _, m := range inlineLink.FindAllStringSubmatch(line, -1) {
		add(m[1])
	}
	line = inlineLink.ReplaceAllString(line, "]")
	if m := reference.FindStringSubmatch(line); m != nil {
		add(m[1])
		return
	}
	for _, m := range tagSource.FindAllStringSubmatch(line, -1) {
		add(m[1])
	}
	line = tagSource.ReplaceAllString(line, "")
	for _, target := range bare.FindAllString(line, -1) {
		add(strings.TrimRight(target, ".,;:!?*_")) // As GitHub does.
	}
}

// anchor adds the name that GitHub gives a heading: in lower case, without marks, with
// dashes for spaces, and numbered where it is taken.
func (p *page) anchor(text string) {
	text = markup.ReplaceAllString(text, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	name := b.String()
	for i := 1; p.anchors[name]; i++ {
		name = b.String() + "-" + strconv.Itoa(i)
	}
	p.anchors[name] = true
}
