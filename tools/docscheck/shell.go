package main

import (
	"path"
	"slices"
	"strings"
)

// command is a simple command of a shell script: no loop, no pipe, no assignment.
type command struct {
	line  int // Where it begins.
	words []string
}

// document is a file that a script writes from a here-document.
type document struct {
	line       int // Of its first line of text.
	name, text string
}

// script is what split finds.
type script struct {
	commands  []command
	documents []document
}

// split takes a script apart as far as a document's blocks need it: quotes, comments,
// continued lines, pipes and lists, command substitution, redirections and
// here-documents. bash -n says elsewhere whether the script is well formed.
func split(text string, line int) script {
	s := splitter{text: text, line: line}
	s.scan()
	return s.found
}

type splitter struct {
	text  string
	at    int
	line  int
	found script

	current  command
	word     strings.Builder
	inWord   bool
	quoted   bool   // The word has quotes: an empty one is a word, too.
	redirect string // The operator whose target the next word is.
	target   string // The file that the current command's output goes to.
	heredoc  string // The delimiter of the here-document that begins after this line.
}

// keywords stand where a command may, and are none.
func keywords() []string {
	return []string{"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!", "{", "}", "time", "("}
}

func (s *splitter) scan() {
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '\\' && strings.HasPrefix(s.text[s.at:], "\\\n"):
			s.at += 2
			s.line++
		case c == '\\' && s.at+1 < len(s.text):
			s.take(s.text[s.at+1 : s.at+2])
			s.at += 2
		case c == '#' && !s.inWord:
			s.at += len(s.text[s.at:]) - len(strings.TrimLeft(s.text[s.at:], "#"))
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
		case c == '\'' || c == '"':
			s.quote(c)
		case strings.HasPrefix(s.text[s.at:], "$(") || c == '`':
			s.fallback(c)
		case c == ' ' || c == '\t':
			s.endWord()
			s.at++
		case c == '\n':
			s.endCommand()
			s.at++
			s.line++
			s.document()
		case c == '<' || c == '>':
			s.redirection()
		case c == '&' && strings.HasPrefix(s.text[s.at:], "&>"):
			s.endWord()
			s.at++
		case strings.IndexByte(";&|()", c) >= 0:
			s.endCommand()
			s.at++
		default:
			s.take(s.text[s.at : s.at+1])
			s.at++
		}
	}
	s.endCommand()
}

func (s *splitter) take(text string) {
	s.inWord = true
	s.word.WriteString(text)
}

// quote reads to the closing quote.
func (s *splitter) quote(mark byte) {
	s.inWord, s.quoted = true, true
	for s.at++; s.at < len(s.text) && s.text[s.at] != mark; s.at++ {
		switch {
		case mark == '"' && s.text[s.at] == '\\' && s.at+1 < len(s.text):
			s.at++
		case mark == '"' && strings.HasPrefix(s.text[s.at:], "$("):
			s.fallback('$')
			s.at--
			continue
		case s.text[s.at] == '\n':
			s.line++
		}
		s.word.WriteByte(s.text[s.at])
	}
	s.at++
}

// fallback reads $(…) or `…`, whose commands are commands, too.
func (s *splitter) fallback(mark byte) {
	s.inWord, s.quoted = true, true
	if mark == '`' {
		inner, _, _ := strings.Cut(s.text[s.at+1:], "`")
		s.inner(inner)
		s.at += len(inner) + 2
		return
	}
	depth, from := 0, s.at+2
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	s.inner(s.text[from:min(s.at, len(s.text))])
	s.at++
}

func (s *splitter) inner(text string) {
	found := split(text, s.line)
	s.found.commands = append(s.found.commands, found.commands...)
	s.line += strings.Count(text, "\n")
}

// redirection reads an operator such as 2>&1, > or <<; the next word is its target.
func (s *splitter) redirection() {
	if digits := s.word.String(); digits != "" && strings.Trim(digits, "0123456789") == "" {
		s.word.Reset()
		s.inWord = false
	}
	s.endWord()
	from := s.at
	for s.at < len(s.text) && strings.IndexByte("<>&-", s.text[s.at]) >= 0 {
		s.at++
	}
	s.redirect = s.text[from:s.at]
}

func (s *splitter) endWord() {
	word, is := s.word.String(), s.inWord && (s.quoted || s.word.Len() > 0)
	s.word.Reset()
	s.inWord, s.quoted = false, false
	switch {
	case !is:
		return
	case s.redirect != "":
		if strings.HasPrefix(s.redirect, "<<") {
			s.heredoc = word
		} else if strings.HasPrefix(s.redirect, ">") {
			s.target = word
		}
		s.redirect = ""
		return
	}
	if len(s.current.words) == 0 {
		s.current.line = s.line
		if slices.Contains(keywords(), word) {
			return
		}
		if name, _, found := strings.Cut(word, "="); found && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == "" {
			return // An assignment.
		}
	}
	s.current.words = append(s.current.words, word)
}

func (s *splitter) endCommand() {
	s.endWord()
	if w := s.current.words; len(w) > 0 && w[0] != "for" && w[0] != "case" {
		s.found.commands = append(s.found.commands, s.current)
	}
	s.current = command{}
	s.redirect = ""
}

// document reads the here-document that the line before has announced.
func (s *splitter) document() {
	if s.heredoc == "" {
		return
	}
	d := document{line: s.line, name: path.Base(s.target)}
	for s.at < len(s.text) {
		line, _, _ := strings.Cut(s.text[s.at:], "\n")
		s.at = min(s.at+len(line)+1, len(s.text))
		s.line++
		if strings.TrimSpace(line) == s.heredoc {
			break
		}
		d.text += line + "\n"
	}
	s.found.documents = append(s.found.documents, d)
	s.heredoc, s.target = "", ""
}
