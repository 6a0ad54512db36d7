package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// addTied is the flag of commands that a program starts for itself. A program that is killed
// runs no code of its own, but the system closes its end of the pipe.
func addTied(fs *flag.FlagSet) *bool {
	return fs.Bool("until-stdin-closes", false, "end when standard input does: whoever started this is gone")
}

// untilClosed ends ctx when stdin does. The process outlives its standard error, which goes
// the same way: otherwise the first line of its log afterwards would end it, by SIGPIPE.
func untilClosed(ctx context.Context, stdin io.Reader, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cut := context.WithCancel(ctx)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // and not Ignore, which children would inherit
	go func() {                                             // ends with standard input, or with the process
		_, _ = io.Copy(io.Discard, stdin) // whatever ends it: nobody is there any more
		log.WarnContext(ctx, "standard input is closed: whoever started this is gone")
		cut()
	}()
	return ctx, cut
}
