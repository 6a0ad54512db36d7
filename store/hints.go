package store

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/distribution"
	"github.com/rewardloop/rewardloop/rewards"
)

// Hint is a notable property of rewards, with the address of the page that shows it.
type Hint struct {
	Kind      string   `json:"kind"` // length, size, repetition, colour, saturated or disagreement
	Component string   `json:"component"`
	With      string   `json:"with"`
	R         *float64 `json:"r"`
	N         int      `json:"n"`
	Text      string   `json:"text"`
	Link      string   `json:"link"`
}

type hintKey struct {
	run   string
	split rewards.Split
}

type hintList struct {
	at    time.Time
	hints []Hint
}

// Of how many rows hints are made, how long they are kept, and what is worth one.
const (
	hintRows     = lookRows
	hintPictures = 300
	hintAge      = 10 * time.Second
	hintLeast    = 30  // samples
	hintStrong   = 0.5 // of a correlation
	hintFlat     = 0.3 // of groups
)

// Hints returns the hints for the newest 2,000 rows of a run. The result is cached for 10 s.
func (r *Reader) Hints(ctx context.Context, run string, split rewards.Split) ([]Hint, error) {
	key := hintKey{run, split}
	r.mu.Lock()
	known, ok := r.hints[key]
	r.mu.Unlock()
	if ok && time.Since(known.at) < hintAge {
		return known.hints, nil
	}
	rows, _, err := r.Results(ctx, Query{Run: &run, Split: split, Sort: Newest, Limit: hintRows})
	if err != nil {
		return nil, err
	}
	hints := []Hint{}
	columns := map[string]func(*Row) *float64{"reward": func(row *Row) *float64 { return row.Score }}
	for _, name := range ComponentNames(rows) {
		columns[name] = func(row *Row) *float64 { return row.Components[name] }
	}
	colours, err := r.colours(ctx, rows)
	if err != nil {
		return nil, err
	}
	sights := []struct {
		kind, with string
		of         func(*Row) *float64
	}{
		{"length", "the length of the response", func(row *Row) *float64 { return positive(len(row.Header.Sample.Response)) }},
		{"length", "the length of the prompt", func(row *Row) *float64 { return positive(len(row.Header.Sample.Prompt)) }},
		{"repetition", "the share of repeated words in the response", func(row *Row) *float64 { return repetition(row.Header.Sample.Response) }},
		{"size", "the number of pixels", pixelsOf},
		{"colour", "the mean saturation of the picture", func(row *Row) *float64 { return colours[row.Key] }},
	}
	link := "#/samples?" + url.Values{"run": {run}, "split": {string(split)}, "sort": {string(Best)}}.Encode()
	for _, name := range sortedNames(columns) {
		for _, sight := range sights {
			if rho, n := rankCorrelation(rows, columns[name], sight.of); n >= hintLeast && math.Abs(rho) >= hintStrong {
				way := "higher"
				if rho < 0 {
					way = "lower"
				}
				hints = append(hints, Hint{sight.kind, name, sight.with, &rho, n, fmt.Sprintf("%s is %s where %s is larger (rank correlation %.2f over %d samples).", name, way, sight.with, rho, n), link})
			}
		}
	}
	hints = append(hints, disagreements(rows, columns, run, split)...)
	hints = append(hints, saturated(rows, run, split)...)
	r.mu.Lock()
	if len(r.hints) > 100 {
		clear(r.hints)
	}
	r.hints[key] = hintList{time.Now(), hints}
	r.mu.Unlock()
	return hints, nil
}

func sortedNames(m map[string]func(*Row) *float64) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// disagreements are pairs of components of which one is low where the other is high.
func disagreements(rows []*Row, columns map[string]func(*Row) *float64, run string, split rewards.Split) (hints []Hint) {
	names := slices.DeleteFunc(sortedNames(columns), func(name string) bool { return name == "reward" })
	link := "#/samples?" + url.Values{"run": {run}, "split": {string(split)}, "sort": {string(Disagreeing)}}.Encode()
	for i, a := range names {
		for _, b := range names[i+1:] {
			if rho, n := rankCorrelation(rows, columns[a], columns[b]); n >= hintLeast && rho <= -hintStrong {
				hints = append(hints, Hint{"disagreement", a, b, &rho, n, fmt.Sprintf("%s is low where %s is high (rank correlation %.2f over %d samples).", a, b, rho, n), link})
			}
		}
	}
	return hints
}

// saturated tells of prompt groups whose members all got the same reward: they carry no advantage.
func saturated(rows []*Row, run string, split rewards.Split) []Hint {
	type group struct {
		n              int
		least, largest float64
	}
	type name struct {
		step int64
		uid  string
	}
	groups := map[name]*group{}
	for _, row := range rows {
		if row.UID == "" || row.Score == nil {
			continue
		}
		g := groups[name{row.Step, row.UID}]
		if g == nil {
			g = &group{0, *row.Score, *row.Score}
			groups[name{row.Step, row.UID}] = g
		}
		g.n++
		g.least, g.largest = min(g.least, *row.Score), max(g.largest, *row.Score)
	}
	n, flat := 0, 0
	for _, g := range groups {
		if g.n > 1 {
			n++
			if g.least == g.largest {
				flat++
			}
		}
	}
	if n < 8 || float64(flat) < hintFlat*float64(n) {
		return nil
	}
	link := "#/run/" + url.PathEscape(run) + "/step/" + strconv.FormatInt(rows[0].Step, 10) + "?split=" + string(split)
	return []Hint{{"saturated", "reward", "", nil, n, fmt.Sprintf("%d of %d prompt groups have the same reward for all their samples, and so no advantage.", flat, n), link}}
}

func positive(n int) *float64 {
	if n == 0 {
		return nil
	}
	f := float64(n)
	return &f
}

// repetition is the share of words that have stood in the text before; nil: there are few words.
func repetition(text string) *float64 {
	words := strings.Fields(text)
	if len(words) < 5 {
		return nil
	}
	seen := map[string]bool{}
	for _, w := range words {
		seen[w] = true
	}
	share := 1 - float64(len(seen))/float64(len(words))
	return &share
}

func pixelsOf(row *Row) *float64 {
	for _, m := range row.Media {
		if m.Width != nil && m.Height != nil {
			return positive(*m.Width * *m.Height)
		}
	}
	return nil
}

// colours are the mean saturations of the newest thumbnails, by row.
func (r *Reader) colours(ctx context.Context, rows []*Row) (map[int64]*float64, error) {
	out := map[int64]*float64{}
	for _, row := range rows {
		if len(out) == hintPictures {
			break
		}
		for _, m := range row.Media {
			if m.Thumbnail == nil {
				continue
			}
			data, err := r.Thumbnail(ctx, row.Key, m.N)
			if err != nil {
				return nil, err
			}
			img, err := jpeg.Decode(bytes.NewReader(data))
			if err != nil {
				break
			}
			out[row.Key] = saturation(img)
			break
		}
	}
	return out, nil
}

// saturation is the mean of (largest − least)/largest of the channels over some pixels.
func saturation(img image.Image) *float64 {
	const every = 4
	sum, n := 0.0, 0
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y += every {
		for x := b.Min.X; x < b.Max.X; x += every {
			red, green, blue, _ := img.At(x, y).RGBA()
			if most := max(red, green, blue); most > 0 {
				sum += float64(most-min(red, green, blue)) / float64(most)
			}
			n++
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}

// rankCorrelation is Spearman's of two columns over the rows that have both; NaN where one does not vary.
func rankCorrelation(rows []*Row, a, b func(*Row) *float64) (rho float64, n int) {
	var xs, ys []float64
	for _, row := range rows {
		if x, y := a(row), b(row); x != nil && y != nil {
			xs, ys = append(xs, *x), append(ys, *y)
		}
	}
	return distribution.Spearman(xs, ys), len(xs)
}
