package deploycheck

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Catalogue is every series that there is, by name, with its labels. A histogram has three.
type Catalogue map[string][]string

// targetLabels are those that a scrape adds.
func targetLabels() []string { return []string{"namespace", "job", "instance", "pod"} }

var (
	metricRow   = regexp.MustCompile("(?m)^\\| `(rewardloop_[a-z0-9_]+)` \\| (gauge|counter|histogram) \\| ([^|]*) \\|")
	quotedLabel = regexp.MustCompile("`([a-z_]+)`")
)

// ReadCatalogue reads the page of metrics, which tools/architecture holds to what is emitted. To
// its metrics come what Prometheus and its Go library make, as far as it is used here.
func ReadCatalogue(page string) (Catalogue, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	c := Catalogue{"up": nil, "process_resident_memory_bytes": nil}
	for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, l := range quotedLabel.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		if m[2] == "histogram" {
			c[m[1]+"_sum"], c[m[1]+"_count"] = labels, labels
			c[m[1]+"_bucket"] = append(slices.Clone(labels), "le")
			continue
		}
		c[m[1]] = labels
	}
	if len(c) < 50 {
		return nil, fmt.Errorf("%s: only %d metrics are found in it", page, len(c))
	}
	return c, nil
}

var (
	text       = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	selector   = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)?\s*\{([^{}]*)\}`)
	labelList  = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)`)
	window     = regexp.MustCompile(`\[[^\]]*\]`)
	identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	matcher    = regexp.MustCompile(`^\s*([a-z_]+)\s*(?:=~|!~|!=|=)\s*""\s*$`)
	legend     = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// language are the words of PromQL in use here.
func language() []string {
	return []string{
		"abs", "absent", "and", "clamp_min", "count", "histogram_quantile", "increase", "max", "min", "or", "rate",
		"sort_desc", "sum", "unless", "bool", "by", "without", "on", "ignoring", "group_left", "group_right",
	}
}

// Query is what is known of an expression: the labels of its result, and the metrics in it.
type Query struct {
	Labels, Metrics []string
}

// Query reads an expression, whose metrics and labels must be of the catalogue. Whether it can be
// parsed is for Prometheus to say.
func (c Catalogue) Query(expr string) (Query, error) {
	var q Query
	bare := text.ReplaceAllString(expr, `""`)
	labels := targetLabels()
	known := func(name string) error {
		own, there := c[name]
		if !there {
			return fmt.Errorf("there is no metric %s", name)
		}
		q.Metrics = append(q.Metrics, name)
		labels = append(labels, own...)
		return nil
	}
	// Lists of labels may stand before the metrics that have them.
	lists := labelList.FindAllStringSubmatch(bare, -1)
	rest := labelList.ReplaceAllString(bare, " ")
	for _, m := range selector.FindAllStringSubmatch(rest, -1) {
		if err := known(m[1]); err != nil {
			return q, err
		}
		for part := range strings.SplitSeq(m[2], ",") {
			l := matcher.FindStringSubmatch(part)
			if l == nil {
				return q, fmt.Errorf("%s: %q is not a matcher", m[1], part)
			}
			if !slices.Contains(append(targetLabels(), c[m[1]]...), l[1]) {
				return q, fmt.Errorf("%s has no label %s", m[1], l[1])
			}
		}
	}
	rest = window.ReplaceAllString(selector.ReplaceAllString(rest, " "), " ")
	for _, word := range identifier.FindAllString(rest, -1) {
		if slices.Contains(language(), word) {
			continue
		}
		if err := known(word); err != nil {
			return q, err
		}
	}
	if len(q.Metrics) == 0 {
		return q, fmt.Errorf("%q asks for no metric", expr)
	}
	q.Labels = labels
	var by []string
	for _, m := range lists {
		for l := range strings.SplitSeq(m[2], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(labels, l) {
				return q, fmt.Errorf("%s (%s): none of %v has a label %s", m[1], m[2], q.Metrics, l)
			}
			if m[1] == "by" {
				by = append(by, strings.TrimSpace(l))
			}
		}
	}
	if len(by) > 0 {
		q.Labels = by
	} else if regexp.MustCompile(`\b(sum|max|min|count)\s*\(`).MatchString(rest) {
		q.Labels = nil // all are added up
	}
	return q, nil
}

// Names holds the labels that a text shows, {{instance}} in a legend or {{ $labels.instance }} in an
// annotation, to those of the result.
func (q Query) Names(said string) error {
	for _, m := range legend.FindAllStringSubmatch(said, -1) {
		if !slices.Contains(q.Labels, m[1]) {
			return fmt.Errorf("%q shows the label %s, and the result of the query has %v", said, m[1], q.Labels)
		}
	}
	return nil
}
