package fabric

import (
	"fmt"
	"log/slog"
)

// serverLog has what the engine in this process says of those who connect among the
// process's own lines. Its notices are about itself and not worth a line.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug(fmt.Sprintf("engine: "+format, v...))
}
func (l serverLog) Warnf(format string, v ...any)  { l.log.Warn(fmt.Sprintf("engine: "+format, v...)) }
func (l serverLog) Errorf(format string, v ...any) { l.log.Warn(fmt.Sprintf("engine: "+format, v...)) }
func (l serverLog) Fatalf(format string, v ...any) { l.log.Error(fmt.Sprintf("engine: "+format, v...)) }
func (l serverLog) Debugf(string, ...any)          {}
func (l serverLog) Tracef(string, ...any)          {}
