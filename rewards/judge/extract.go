package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// extraction says where in an answer the score stands.
type extraction struct {
	// Regex is a pattern whose group 1 is the score.
	Regex string `json:"regex"`
	// JSON is the path to the score in the answer's JSON: "score", "axes.0.value".
	JSON string `json:"json"`
	// Schema is a JSON schema the engine holds the answer to; it goes with JSON.
	Schema json.RawMessage `json:"schema"`
	// Tag is the element whose text is the score; "score" where neither Regex nor
	// JSON is set.
	Tag string `json:"tag"`
	// Match says which counts where several match: "last" (default) or "first".
	Match string `json:"match"`
	// Values gives words a number: {"yes": 1, "no": 0}. They are compared in lower
	// case, without surrounding space.
	Values map[string]float64 `json:"values"`
	// Min and Max bound the score; OutOfRange says what happens beyond them:
	// "refuse" (default; as an answer that cannot be read) or "clip".
	Min        *float64 `json:"min"`
	Max        *float64 `json:"max"`
	OutOfRange string   `json:"out_of_range"`
}

// Words of the options.
const (
	matchFirst = "first"
	matchLast  = "last"
	outRefuse  = "refuse"
	outClip    = "clip"
)

var (
	tagName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	wholeNumber = regexp.MustCompile(`^` + decimal + `$`)
)

func (e *extraction) validate() error {
	errs := rewards.Faults{oneOf("match", e.Match, matchFirst, matchLast), oneOf("out_of_range", e.OutOfRange, outRefuse, outClip)}
	ways := 0
	for _, way := range []string{e.Regex, e.JSON, e.Tag} {
		if way != "" {
			ways++
		}
	}
	errs.Add(ways > 1, "regex, json and tag: set only one")
	if e.Regex != "" {
		if re, err := regexp.Compile(e.Regex); err != nil {
			errs = append(errs, fmt.Errorf("regex: %w", err))
		} else if re.NumSubexp() < 1 {
			errs = append(errs, fmt.Errorf("regex: %q has no group; put parentheses around the score", e.Regex))
		}
	}
	errs.Add(e.Tag != "" && !tagName.MatchString(e.Tag), "tag: %q is not a name; want a name such as score for <score>", e.Tag)
	if e.hasSchema() {
		var object map[string]any
		errs.Add(e.JSON == "", "schema: needs json, the path to the score")
		if json.Unmarshal(e.Schema, &object) != nil {
			errs = append(errs, errors.New("schema: want a JSON object"))
		}
	}
	if e.Min != nil && e.Max != nil && *e.Min >= *e.Max {
		errs = append(errs, fmt.Errorf("min and max: %v and %v, want the lower first", *e.Min, *e.Max))
	}
	return errors.Join(errs...)
}

func (e *extraction) hasSchema() bool {
	return len(e.Schema) > 0 && !bytes.Equal(e.Schema, []byte("null"))
}

// reader returns the function that finds the score in an answer. The options must
// be valid.
func (e *extraction) reader() func(answer string) (float64, error) {
	find := e.byJSON
	if e.JSON == "" {
		what := e.Regex
		if what == "" {
			tag := e.Tag
			if tag == "" {
				tag = "score"
			}
			what = `(?is)<` + tag + `>(.*?)</` + tag + `>`
		}
		re := regexp.MustCompile(what)
		find = func(answer string) (string, error) { return e.byPattern(re, answer) }
	}
	values := make(map[string]float64, len(e.Values))
	for word, v := range e.Values {
		values[fold(word)] = v
	}
	return func(answer string) (float64, error) {
		found, err := find(afterThinking(answer))
		if err != nil {
			return 0, err
		}
		v, ok := values[fold(found)]
		if !ok {
			if v, err = number(found); err != nil {
				return 0, err
			}
		}
		return e.within(v)
	}
}

func fold(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// afterThinking is the answer without what a model thinks aloud before it, where the
// engine does not keep that apart.
func afterThinking(answer string) string {
	if i := strings.LastIndex(answer, "</think>"); i >= 0 {
		return answer[i+len("</think>"):]
	}
	return answer
}

// number reads a decimal number; a score of "4/5", "NaN" or "0x4" is none.
func number(s string) (float64, error) {
	s = strings.TrimSpace(s)
	if !wholeNumber.MatchString(s) {
		return 0, fmt.Errorf("the score %q is not a number", clipTo(s, 50))
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("the score %q overflows a float", clipTo(s, 50))
	}
	return v, nil
}

func clipTo(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// byPattern returns group 1 of the first or last match.
func (e *extraction) byPattern(re *regexp.Regexp, answer string) (string, error) {
	n := -1
	if e.Match == matchFirst {
		n = 1
	}
	all := re.FindAllStringSubmatch(answer, n)
	if len(all) == 0 {
		return "", fmt.Errorf("no match for %s", clipTo(re.String(), 200))
	}
	return all[len(all)-1][1], nil
}

// maxOpenings bounds how many beginnings of JSON are tried in an answer.
const maxOpenings = 16

// byJSON finds the first JSON object or list in the answer that has the path.
// Whatever stands around it (words, a fence of Markdown) is ignored.
func (e *extraction) byJSON(answer string) (string, error) {
	var found string
	err := eachJSON(answer, func(v any) (err error) {
		found, err = walk(v, strings.Split(e.JSON, "."))
		return err
	})
	return found, err
}

// eachJSON gives take the JSON objects and lists of an answer until it is content with one. Numbers are json.Number.
func eachJSON(answer string, take func(v any) error) error {
	err := errors.New("no JSON found")
	for range maxOpenings {
		i := strings.IndexAny(answer, "{[")
		if i < 0 {
			break
		}
		answer = answer[i:]
		d := json.NewDecoder(strings.NewReader(answer))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			answer = answer[1:]
			continue
		}
		if err = take(v); err == nil {
			return nil
		}
		answer = answer[d.InputOffset():]
	}
	return err
}

// walk follows a path of names and indexes to a number or text.
func walk(v any, path []string) (string, error) {
	for i, step := range path {
		var ok bool
		switch at := v.(type) {
		case map[string]any:
			v, ok = at[step]
		case []any:
			n, err := strconv.Atoi(step)
			if ok = err == nil && n >= 0 && n < len(at); ok {
				v = at[n]
			}
		}
		if !ok {
			return "", fmt.Errorf("the JSON has no %s", strings.Join(path[:i+1], "."))
		}
	}
	switch leaf := v.(type) {
	case json.Number:
		return leaf.String(), nil
	case string:
		return leaf, nil
	case bool:
		return strconv.FormatBool(leaf), nil
	}
	return "", fmt.Errorf("%s in the JSON is not a number", strings.Join(path, "."))
}

func (e *extraction) within(v float64) (float64, error) {
	low, high := v, v
	if e.Min != nil {
		low = *e.Min
	}
	if e.Max != nil {
		high = *e.Max
	}
	if (v < low || v > high) && e.OutOfRange == outRefuse {
		return 0, fmt.Errorf("the score is %v, want %v to %v", v, show(e.Min), show(e.Max))
	}
	if e.Min != nil {
		v = max(v, low)
	}
	if e.Max != nil {
		v = min(v, high)
	}
	return v, nil
}

func show(bound *float64) string {
	if bound == nil {
		return "any"
	}
	return strconv.FormatFloat(*bound, 'g', -1, 64)
}
