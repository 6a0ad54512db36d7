package demo

import (
	"fmt"
	"strings"
	"time"
)

// String returns the text that the demo prints about d.
func (d *Damage) String() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-13s %s\n", label, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "Break it: %d pictures to an HTTP scorer, by a gateway and two workers in processes of their own\n", d.Samples)
	line("undisturbed", "%s", seconds(d.Undisturbed))
	broken := []string{fmt.Sprintf("kill -9 of %s after %d results", d.Killed, d.Samples/4), fmt.Sprintf("the scorer down for %s after %d results", seconds(d.Down), d.Samples/2)}
	if d.NeighbourOf > 0 {
		broken = append(broken, fmt.Sprintf("a neighbour whose Python function raises at each of its %d samples", d.NeighbourOf))
	}
	line("broken", "%s", strings.Join(broken, "; "))
	line("results", "%d of %d scored with the right score, lost %d, swapped %d, failed %d", d.Scored, d.Samples, d.Lost, d.Swapped, d.Failed)
	for _, f := range d.Failures {
		line("", "%s", f)
	}
	line("it cost", "%s instead of %s, of which the scorer was down for %s; %d pictures needed another attempt, %d were scored twice",
		seconds(d.Took), seconds(d.Undisturbed), seconds(d.Down), d.Again, d.Twice)
	if d.NeighbourOf > 0 {
		line("neighbour", "%d of %d failed (%s)", d.Neighbour, d.NeighbourOf, firstLine(d.Reason))
	}
	if d.Without != "" {
		line("not broken", "%s", d.Without)
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// firstLine is a reason without its traceback.
func firstLine(reason string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(reason), "\n")
	return line
}
