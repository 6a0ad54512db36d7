package fabric

import (
	"fmt"
	"log/slog"
)

// serverLog has what the engine in this process says of those who connect among the
// process's own lines, and counts whom it refuses. Its notices are about itself and not
// worth a line.
type serverLog struct {
	log     *slog.Logger
	metrics *metrics
}

func (l serverLog) complaint(format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if reason, refusal := reasonOf(text); refusal {
		l.metrics.refused.WithLabelValues(reason).Inc()
	}
	l.log.Warn("engine: " + text)
}

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("engine: " + fmt.Sprintf(format, v...))
}
func (l serverLog) Warnf(format string, v ...any)  { l.complaint(format, v) }
func (l serverLog) Errorf(format string, v ...any) { l.complaint(format, v) }
func (l serverLog) Fatalf(format string, v ...any) { l.complaint(format, v) }
func (l serverLog) Debugf(string, ...any)          {}
func (l serverLog) Tracef(string, ...any)          {}
