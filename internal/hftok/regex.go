package hftok

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// span is a part of a text that a pattern matched, or that lies between two matches.
type span struct {
	from, to int // bytes
	match    bool
}

// finder is a pattern.
type finder interface {
	// spans appends the parts of s to dst; they cover s in order.
	spans(dst []span, s string) ([]span, error)
}

// compile makes a finder of an Oniguruma expression: a scanner where there is one, else regexp2.
func compile(expr string) (finder, error) {
	if f := handWritten(expr); f != nil {
		return f, nil
	}
	return compileGeneral(expr)
}

const (
	// matchTime bounds the search for one match, textTime that for all matches of a text. An
	// ordinary match takes microseconds; a second is for machines that are very busy.
	matchTime = time.Second
	textTime  = 10 * time.Second
)

// general is a regular expression without a scanner.
type general struct{ re *regexp2.Regexp }

func compileGeneral(expr string) (finder, error) {
	translated, err := translate(expr)
	if err != nil {
		return nil, fmt.Errorf("%w: regular expression %q: %w", errUnsupported, short(expr), err)
	}
	// In Oniguruma's Ruby syntax ^ and $ stand at every line.
	re, err := regexp2.Compile(translated, regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("%w: regular expression %q: %w", errUnsupported, short(expr), err)
	}
	re.MatchTimeout = matchTime
	return general{re}, nil
}

func (g general) spans(dst []span, s string) ([]span, error) {
	runes := []rune(s)
	start := time.Now()
	m, err := g.re.FindRunesMatch(runes)
	// Byte offsets are counted along: matches come in order.
	at, atByte, done := 0, 0, 0
	lastRune := -1
	for ; m != nil && err == nil; m, err = g.re.FindNextMatch(m) {
		if time.Since(start) > textTime {
			break
		}
		if m.Length == 0 && m.Index == lastRune {
			continue // Oniguruma finds no empty match where the last one ended
		}
		lastRune = m.Index + m.Length
		from := atByte + width(runes[at:m.Index])
		to := from + width(runes[m.Index:lastRune])
		at, atByte = lastRune, to
		if done < from {
			dst = append(dst, span{done, from, false})
		}
		dst = append(dst, span{from, to, true})
		done = to
	}
	if err != nil {
		return nil, fmt.Errorf("%w: regular expression: %w", errText, err)
	}
	if m != nil {
		return nil, fmt.Errorf("%w: the regular expression was not done after %v", errText, textTime)
	}
	if done < len(s) {
		dst = append(dst, span{done, len(s), false})
	}
	return dst, nil
}

// width is the length in UTF-8.
func width(runes []rune) int {
	n := 0
	for _, r := range runes {
		n += utf8.RuneLen(r)
	}
	return n
}

// literal finds a string; an empty one finds nothing.
type literal string

func (l literal) spans(dst []span, s string) ([]span, error) {
	done := 0
	for l != "" {
		i := strings.Index(s[done:], string(l))
		if i < 0 {
			break
		}
		if i > 0 {
			dst = append(dst, span{done, done + i, false})
		}
		done += i + len(l)
		dst = append(dst, span{done - len(l), done, true})
	}
	if done < len(s) {
		dst = append(dst, span{done, len(s), false})
	}
	return dst, nil
}

// onigWord is \w of Oniguruma within a set, onigLatin what it has in Latin 1 outside of sets.
func onigWord() string {
	return `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}Ⓐ-ⓩ` + "\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189" +
		membersOf(slices.Concat(onigTables("L"), onigTables("M"), onigTables("N")))
}

const onigLatin = "²³¹¼½¾"

// membersOf writes tables, whose strides are 1, as members of a set.
func membersOf(tables []*unicode.RangeTable) string {
	var b strings.Builder
	for _, t := range tables {
		for _, r := range t.R16 {
			b.WriteString(string(rune(r.Lo)) + "-" + string(rune(r.Hi)))
		}
		for _, r := range t.R32 {
			b.WriteString(string(rune(r.Lo)) + "-" + string(rune(r.Hi)))
		}
	}
	return b.String()
}

// classOf returns the members of a set that an escape stands for and whether the set is negated; members is
// "" where regexp2, whose tables are Go's, knows the escape as Oniguruma does.
func classOf(escape string) (members string, negated bool) {
	negated = escape[1] == 'P' || escape[1] == 'W'
	if escape[1] == 'w' || escape[1] == 'W' {
		return onigWord(), negated
	}
	if strings.HasPrefix(escape, `\p{`) || strings.HasPrefix(escape, `\P{`) {
		if more := onigTables(escape[3 : len(escape)-1]); more != nil {
			return `\p` + escape[2:] + membersOf(more), negated
		}
	}
	return "", false
}

// translator rewrites an expression of Oniguruma's Ruby syntax for regexp2, whose syntax is .NET's,
// and refuses what the two understand differently.
type translator struct {
	in   string
	out  strings.Builder
	atom int // where the last atom starts in out; -1: none to repeat
	open []openGroup
	fold bool // within (?i:
}

// openGroup is a group whose end is not reached.
type openGroup struct {
	start int  // in out
	fold  bool // what fold was before it
}

func translate(expr string) (string, error) {
	t := &translator{in: expr, atom: -1}
	for t.in != "" {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

// take moves n bytes over as one atom.
func (t *translator) take(n int) {
	t.atom = t.out.Len()
	t.out.WriteString(t.in[:n])
	t.in = t.in[n:]
}

func (t *translator) next() error {
	switch t.in[0] {
	case '\\':
		return t.escape()
	case '[':
		return t.set()
	case '(':
		return t.group()
	case ')':
		if len(t.open) == 0 {
			return errors.New("a closing parenthesis has no opening parenthesis")
		}
		last := len(t.open) - 1
		group := t.open[last]
		t.open = t.open[:last]
		t.take(1)
		t.atom, t.fold = group.start, group.fold
	case '*', '+', '?', '{':
		return t.repeat()
	case '|':
		t.take(1)
		t.atom = -1
	default:
		r, n := utf8.DecodeRuneInString(t.in)
		if more := t.foldsTo(r); more != 0 {
			t.atom = t.out.Len()
			t.out.WriteString("[" + string(r) + string(more) + "]")
			t.in = t.in[n:]
			return nil
		}
		t.take(n)
	}
	return nil
}

// foldsTo returns the third form of s and k, which Oniguruma knows where case does not matter and
// regexp2 does not.
func (t *translator) foldsTo(r rune) rune {
	switch {
	case !t.fold:
	case r == 's' || r == 'S':
		return 'ſ'
	case r == 'k' || r == 'K':
		return '\u212a'
	}
	return 0
}

// escape moves \x over.
func (t *translator) escape() error {
	s, err := escaped(t.in)
	if err != nil {
		return err
	}
	members, negated := classOf(s)
	if members == "" {
		t.take(len(s))
		return nil
	}
	t.atom = t.out.Len()
	open := "["
	if negated {
		open = "[^"
	}
	if strings.EqualFold(s, `\w`) {
		members += onigLatin
	}
	t.out.WriteString(open + members + "]")
	t.in = t.in[len(s):]
	return nil
}

// escaped returns the escape that begins s if both engines understand it alike.
func escaped(s string) (string, error) {
	if len(s) < 2 {
		return "", errors.New("a backslash at the end")
	}
	switch c := s[1]; {
	case c == 'p' || c == 'P':
		end := strings.IndexByte(s, '}')
		if len(s) < 4 || s[2] != '{' || end < 0 || strings.ContainsAny(s[3:end], "^=: ") {
			return "", errors.New(`a \p without a plain {name}`)
		}
		return s[:end+1], nil
	case c == 'x' && len(s) >= 4 && isHex(s[2:4]):
		return s[:4], nil
	case c == 'u' && len(s) >= 6 && isHex(s[2:6]):
		return s[:6], nil
	case strings.IndexByte("sSdDwWnrtfvaeAzZ", c) >= 0:
		return s[:2], nil
	case c < utf8.RuneSelf && !isWord(rune(c)):
		return s[:2], nil
	}
	return "", fmt.Errorf("%q is unknown", s[:2])
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// set moves [...] over.
func (t *translator) set() error {
	start := t.out.Len()
	i := 1
	if i < len(t.in) && t.in[i] == '^' {
		i++
	}
	t.out.WriteString(t.in[:i])
	for first := true; ; first = false {
		if i >= len(t.in) {
			return errors.New("a set is not closed")
		}
		rest := t.in[i:]
		switch {
		case rest[0] == ']' && !first:
			t.out.WriteByte(']')
			t.in, t.atom = rest[1:], start
			return nil
		case rest[0] == '[' || rest[0] == ']' || strings.HasPrefix(rest, "&&"):
			return fmt.Errorf("%q within a set", rest[:1])
		case rest[0] == '\\':
			s, err := escaped(rest)
			if err != nil {
				return err
			}
			members, negated := classOf(s)
			switch {
			case members == "":
				t.out.WriteString(s)
			case negated:
				return fmt.Errorf("%s within a set", s)
			default:
				t.out.WriteString(members)
			}
			i += len(s)
		default:
			r, n := utf8.DecodeRuneInString(rest)
			t.out.WriteString(rest[:n])
			i += n
			if more := t.foldsTo(r); more != 0 && !strings.HasPrefix(rest[n:], "-") {
				t.out.WriteRune(more)
			}
		}
	}
}

// group moves the opening of a group over.
func (t *translator) group() error {
	start := t.out.Len()
	n := 1
	if strings.HasPrefix(t.in, "(?") {
		n = 0
		for _, known := range []string{"(?:", "(?i:", "(?-i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"} {
			if strings.HasPrefix(t.in, known) {
				n = len(known)
			}
		}
		if n == 0 {
			return fmt.Errorf("unknown group %q", short(t.in[:min(len(t.in), 5)]))
		}
	}
	t.open = append(t.open, openGroup{start, t.fold})
	t.fold = (t.fold || t.in[:n] == "(?i:") && t.in[:n] != "(?-i:"
	t.take(n)
	t.atom = -1
	return nil
}

// repeat moves a quantifier over. A possessive one becomes an atomic group; a plus behind an interval
// repeats the interval once more in Ruby's syntax.
func (t *translator) repeat() error {
	n := 1
	interval := t.in[0] == '{'
	if interval {
		n = strings.IndexByte(t.in, '}') + 1
		if n == 0 || strings.Trim(t.in[1:n-1], "0123456789,") != "" || t.in[1] == ',' {
			return fmt.Errorf("unknown interval %q", short(t.in))
		}
	}
	if t.atom < 0 {
		return fmt.Errorf("%q has nothing to repeat", t.in[:n])
	}
	t.out.WriteString(t.in[:n])
	t.in = t.in[n:]
	start := t.atom
	switch {
	case strings.HasPrefix(t.in, "?"):
		if interval {
			return errors.New("an interval followed by a question mark")
		}
		t.out.WriteByte('?')
		t.in = t.in[1:]
	case strings.HasPrefix(t.in, "+"):
		t.wrap(start, interval)
		t.in = t.in[1:]
	}
	if t.in != "" && strings.IndexByte("*+?{", t.in[0]) >= 0 {
		return errors.New("a quantifier follows a quantifier")
	}
	return nil
}

// wrap puts what was written since start into a group.
func (t *translator) wrap(start int, interval bool) {
	all := t.out.String()
	t.out.Reset()
	t.out.WriteString(all[:start])
	if interval {
		t.out.WriteString("(?:" + all[start:] + ")+")
	} else {
		t.out.WriteString("(?>" + all[start:] + ")")
	}
}
