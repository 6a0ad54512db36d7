package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// table prints rows in columns. On a terminal a line is cut where that ends, so that each row
// stays one line; elsewhere it is whole.
type table struct {
	e      *env
	rows   [][]string
	widths []int
}

func newTable(e *env, head ...string) *table {
	t := &table{e: e, widths: make([]int, len(head))}
	for i := range head {
		head[i] = strings.ToUpper(head[i])
	}
	t.row(head...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.Join(strings.Fields(c), " ")
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cells[i]))
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print() {
	most := 0
	if f, ok := t.e.stdout.(*os.File); ok {
		most, _, _ = term.GetSize(int(f.Fd())) // 0: no terminal
	}
	for _, cells := range t.rows {
		var b strings.Builder
		for i, c := range cells {
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		line := []rune(strings.TrimRight(b.String(), " "))
		if most > 1 && len(line) > most {
			line = append(line[:most-1], '…')
		}
		fmt.Fprintln(t.e.stdout, string(line))
	}
}
