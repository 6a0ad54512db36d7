package htmlreport_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // what the thumbnails are
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/distribution"
	"github.com/rewardloop/rewardloop/internal/htmlreport"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

func column(values ...float64) *distribution.Column {
	c := new(distribution.Column)
	for _, v := range values {
		c.Add(v)
	}
	return c
}

func written(t *testing.T, r *htmlreport.Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b))
	return b.String()
}

func png(t *testing.T, width, height int, shade byte) []byte {
	t.Helper()
	p := &rewards.Pixels{Width: width, Height: height, Count: 1, RGB: bytes.Repeat([]byte{shade, 90, 200}, width*height)}
	file, err := media.EncodePNG(p, 0)
	require.NoError(t, err)
	return file
}

func picture(t *testing.T, width, height int) *rewards.Media {
	t.Helper()
	file := png(t, width, height, 9)
	return &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}
}

func decoder(t *testing.T) *media.Decoder {
	t.Helper()
	d, err := media.New(media.Config{})
	require.NoError(t, err)
	return d
}

// full is a report of every part, in which each text is hostile.
func full(t *testing.T, hostile string) *htmlreport.Report {
	t.Helper()
	pair := new(distribution.Correlation)
	for i := range 9 {
		pair.Add(float64(i), float64(i*i))
	}
	strip := htmlreport.Pictures(t.Context(), decoder(t), []*rewards.Media{picture(t, 900, 300)})
	require.Empty(t, strip.Lost)
	sample := htmlreport.Sample{
		ID: hostile, Group: hostile, Reward: 0.5, Values: []htmlreport.Value{{Name: hostile, Value: 1}},
		Texts: []htmlreport.Text{{Name: "prompt", Text: hostile}, {Name: hostile, Text: strings.Repeat(hostile, 300)}}, Pictures: strip,
	}
	lost := sample
	lost.Pictures = htmlreport.Strip{Lost: hostile}
	return &htmlreport.Report{
		Title: hostile, Lead: hostile, Notes: []string{hostile}, Facts: []htmlreport.Fact{{Value: hostile, Name: hostile}},
		Reward:     column(0.1, 0.2, 0.5, 0.9),
		Components: []htmlreport.Component{{Name: hostile, Column: column(1, 2)}, {Name: hostile + "2", Column: column(3, 3)}},
		Pairs:      []htmlreport.Pair{{A: hostile, B: hostile + "2", Correlation: pair}},
		Best:       []htmlreport.Sample{sample}, Worst: []htmlreport.Sample{lost},
		Failures: []htmlreport.Failure{{Outcome: hostile, Class: hostile, Count: 7, Message: hostile, IDs: []string{hostile}}},
		Groups:   []htmlreport.Group{{Name: hostile, Text: hostile, Dots: []htmlreport.Dot{{ID: hostile, Reward: 0.3}, {ID: "b", Reward: 0.7}}, Failed: 1}},
		Steps: []htmlreport.Step{{
			Title: hostile, Text: hostile, Marks: []htmlreport.Mark{{Name: hostile, At: 2}, {Name: "end", At: 2.1}},
			Tracks: []htmlreport.Track{{Name: hostile, Kind: htmlreport.Scoring, Spans: []htmlreport.Span{{ID: hostile, From: 0, To: 2}}}},
		}},
		Foot: hostile,
	}
}

func hostileTexts() map[string]string {
	return map[string]string{
		"script":    `<script>alert(1)</script><img src=x onerror=alert(2)>`,
		"attribute": `" onmouseover="alert(1)" style="position:fixed;inset:0" x='`,
		"style":     `</style><style>body{display:none}</style>`,
		"title":     `</title></svg></details><iframe src=//example.org></iframe>`,
		"address":   `javascript:alert(1) url(https://example.org/x.png)`,
		"template":  `{{.}}{{template "bars"}} ${x}`,
		"word":      strings.Repeat("W", 5000),
		"direction": "\u202e gnitirw \u2066 x \u2069",
		"controls":  "a\x00b\x1b[31mc\x7f",
		"bytes":     "\xff\xfe not UTF-8 \xc3",
		"marks":     strings.Repeat("Z\u0300\u0301\u0302", 400),
	}
}

// Whatever a text says, it is a text: the page has the elements and the attributes that it has with
// a tame one, but for what is folded because it is long.
func TestNoTextOfAStrangerBecomesMarkup(t *testing.T) {
	t.Parallel()
	tame := elements(t, written(t, full(t, "tame")))
	for name, hostile := range hostileTexts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := written(t, full(t, hostile))
			require.Equal(t, tame, elements(t, page))
			require.NotContains(t, page, "\u202e")
			require.NotContains(t, page, "\x00")
			require.NotContains(t, page, "ZgotmplZ", "the template refused a value")
			require.Less(t, len(page), 1<<20, "texts are cut")
		})
	}
}

// elements counts each element with the names of its attributes, and holds the values of those that
// could ask somebody for something.
func elements(t *testing.T, page string) map[string]int {
	t.Helper()
	n := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local == "details" || start.Name.Local == "summary" || start.Name.Local == "div" && len(start.Attr) == 1 && start.Attr[0].Value == "full" {
			continue
		}
		what := start.Name.Local
		for _, a := range start.Attr {
			switch what += " " + a.Name.Local; a.Name.Local {
			case "src":
				require.True(t, strings.HasPrefix(a.Value, "data:image/jpeg;base64,"), a.Value)
			case "style":
				require.Regexp(t, `^(height|left):[0-9.]+%$|^right:calc\(100% - [0-9.]+%\)$|^background:color-mix\(in srgb, var\(--(pos|neg)\) [0-9]+%, transparent\)$`, a.Value)
			}
		}
		n[what]++
	}
}

func TestThePageAsksNobodyForAnything(t *testing.T) {
	t.Parallel()
	page := written(t, full(t, "x"))
	require.Contains(t, page, `content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"`)
	require.NotRegexp(t, `<(script|link|iframe|object|embed|form|base|audio|video|source)\b`, page)
	require.NotContains(t, page, "@import")
	require.NotContains(t, page, "http://")
	require.NotContains(t, page, "https://")
	for _, m := range regexp.MustCompile(`src="([^"]{0,30})`).FindAllStringSubmatch(page, -1) {
		require.True(t, strings.HasPrefix(m[1], "data:image/jpeg;base64,"), m[1])
	}
	require.Contains(t, page, "prefers-color-scheme: dark")
}

func TestAnEmptyReportSaysThatNothingHasAReward(t *testing.T) {
	t.Parallel()
	page := written(t, &htmlreport.Report{Title: "none"})
	require.Contains(t, page, "No sample has a reward.")
	for _, part := range []string{"<h2>Best", "<h2>Worst", "<h2>Failures", "<h2>Components", "<h2>Prompt groups", "<h2>Who worked"} {
		require.NotContains(t, page, part)
	}
}

func TestPicturesAreSmallJPEGsInProportionAndVideosAFewFramesFromFirstToLast(t *testing.T) {
	t.Parallel()
	wide := htmlreport.Pictures(t.Context(), decoder(t), []*rewards.Media{picture(t, 900, 300)})
	require.Len(t, wide.JPEGs, 1)
	size := func(jpeg []byte) image.Config {
		c, kind, err := image.DecodeConfig(bytes.NewReader(jpeg))
		require.NoError(t, err)
		require.Equal(t, "jpeg", kind)
		return c
	}
	require.Equal(t, 384, size(wide.JPEGs[0]).Width)
	require.Equal(t, 128, size(wide.JPEGs[0]).Height)
	tiny := htmlreport.Pictures(t.Context(), decoder(t), []*rewards.Media{picture(t, 3, 1)})
	require.Equal(t, 3, size(tiny.JPEGs[0]).Width, "no picture is made larger")

	film := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8"}
	for i := range 50 {
		film.Frames = append(film.Frames, png(t, 400, 400, byte(5*i)))
	}
	strip := htmlreport.Pictures(t.Context(), decoder(t), []*rewards.Media{film})
	require.True(t, strip.Video)
	require.Equal(t, 50, strip.Of)
	require.Len(t, strip.JPEGs, 6)
	shade := func(jpeg []byte) uint32 {
		img, _, err := image.Decode(bytes.NewReader(jpeg))
		require.NoError(t, err)
		r, _, _, _ := img.At(50, 50).RGBA()
		return r >> 8
	}
	require.InDelta(t, 0, shade(strip.JPEGs[0]), 3)
	require.InDelta(t, 245, shade(strip.JPEGs[5]), 3)

	broken := htmlreport.Pictures(t.Context(), decoder(t), []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, Data: []byte("no picture")}})
	require.Empty(t, broken.JPEGs)
	require.Contains(t, broken.Lost, "cannot be shown")
}

func TestAReportIsBoundedHoweverMuchItIsGiven(t *testing.T) {
	t.Parallel()
	r := full(t, "x")
	big := bytes.Repeat([]byte{0xff}, 1<<20)
	for range 500 {
		one := r.Best[0]
		one.Pictures = htmlreport.Strip{JPEGs: [][]byte{big}, Of: 1}
		r.Best, r.Worst, r.Failures, r.Groups = append(r.Best, one), append(r.Worst, one), append(r.Failures, r.Failures[0]), append(r.Groups, r.Groups[0])
		r.Components = append(r.Components, htmlreport.Component{Name: "c", Column: column(1, 2)})
		r.Steps[0].Tracks = append(r.Steps[0].Tracks, htmlreport.Track{Name: "t", Spans: make([]htmlreport.Span, 100)})
	}
	page := written(t, r)
	require.Less(t, len(page), 12<<20)
	require.Contains(t, page, "no room for more pictures")
	require.Contains(t, page, "The first 64 of 501 groups.")
	require.Contains(t, page, "490 more components are left out")
}

func TestAStepWhoseTimesAreNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []htmlreport.Span{{From: -1, To: 1}, {From: 2, To: 1}, {From: 0, To: math.Inf(1)}, {From: math.NaN(), To: 1}} {
		r := &htmlreport.Report{Steps: []htmlreport.Step{{Tracks: []htmlreport.Track{{Spans: []htmlreport.Span{s}}}}}}
		require.ErrorContains(t, r.Write(new(bytes.Buffer)), "times must be finite", "%+v", s)
	}
}

// A browser lays the page out: nothing is wider than the window, on a telephone as on a
// screen, whatever the texts are.
func TestABrowserFindsNothingWiderThanTheWindow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a browser")
	}
	browser, err := exec.LookPath("/usr/bin/chromium")
	if err != nil {
		t.Skipf("SKIPPED: no Chromium: %v", err)
	}
	dir := t.TempDir()
	var all string
	for _, text := range hostileTexts() {
		all += text + " "
	}
	page := written(t, full(t, all))
	// The frame is as wide as a telephone; a headless window cannot be. It looks at the page from
	// outside, whose own policy forbids scripts.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "report.html"), []byte(page), 0o600))
	const outer = `<!DOCTYPE html><body><iframe id="f" src="report.html" style="width:%dpx;height:800px;border:0"></iframe><script>
f.onload = () => { const d = f.contentDocument.documentElement; document.body.innerText = "measured " + d.scrollWidth + " of " + d.clientWidth; };</script>`
	for _, width := range []int{390, 1440} {
		name := filepath.Join(dir, fmt.Sprintf("outer%d.html", width))
		require.NoError(t, os.WriteFile(name, fmt.Appendf(nil, outer, width), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
			"--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=5000", "--window-size=1600,900", "--dump-dom", "file://"+name).Output()
		require.NoError(t, err)
		found := regexp.MustCompile(`measured (\d+) of (\d+)`).FindStringSubmatch(string(out))
		require.NotNil(t, found, "%s", out)
		require.Equal(t, found[2], found[1], "at %d pixels", width)
	}
}
