package compare

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readOutcome finds the last <result>A|B|tie</result> of an answer. Anything else in
// the last <result> is no answer, whatever stands before it.
func readOutcome(answer string) (outcome, error) {
	word, err := lastElement(answer, "result")
	if err != nil {
		return Unknown, err
	}
	switch word {
	case "a":
		return aBetter, nil
	case "b":
		return bBetter, nil
	case "tie":
		return tie, nil
	}
	return Unknown, fmt.Errorf("<result> contains %q, want A, B or tie", shorten(word))
}

// readOrder finds the last <ranking>3,1,2</ranking> of an answer: the numbers 1 to n,
// best first, each exactly once. It returns them as 0 to n−1.
func readOrder(answer string, n int) ([]int, error) {
	list, err := lastElement(answer, "ranking")
	if err != nil {
		return nil, err
	}
	words := strings.SplitN(list, ",", n+1)
	if len(words) != n {
		return nil, fmt.Errorf("<ranking> contains %q, want %d numbers separated by commas", shorten(list), n)
	}
	order, seen := make([]int, n), make([]bool, n)
	for at, w := range words {
		i, err := strconv.Atoi(strings.TrimSpace(w))
		if err != nil || i < 1 || i > n || seen[i-1] {
			return nil, fmt.Errorf("<ranking> contains %q, want each number from 1 to %d once", shorten(list), n)
		}
		order[at], seen[i-1] = i-1, true
	}
	return order, nil
}

// lastElement is the text of the last <name>…</name>, in lower case and without space
// around it, behind what a model thinks aloud.
func lastElement(answer, name string) (string, error) {
	answer = strings.ToLower(answer)
	if i := strings.LastIndex(answer, "</think>"); i >= 0 {
		answer = answer[i:]
	}
	begin, end := "<"+name+">", "</"+name+">"
	till := strings.LastIndex(answer, end)
	if till < 0 {
		return "", errors.New("no " + begin + "…" + end + " found")
	}
	from := strings.LastIndex(answer[:till], begin)
	if from < 0 {
		return "", errors.New("no " + begin + " before the last " + end)
	}
	return strings.TrimSpace(answer[from+len(begin) : till]), nil
}

// shorten is the beginning of what an error quotes.
func shorten(s string) string {
	if len(s) > 50 {
		return strings.ToValidUTF8(s[:50], "") + "…"
	}
	return s
}

// maxSaid bounds what the details hold of an answer, in bytes.
const maxSaid = 400

func tail(s string) string {
	if len(s) <= maxSaid {
		return s
	}
	from := len(s) - maxSaid
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return "…" + s[from:]
}
