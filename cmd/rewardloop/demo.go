package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/examples/demo"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

const demoText = `
Simulates a FlowGRPO training step on real pictures, with OCR as the reward:
PP-OCR if its models and ONNX Runtime are installed, else Tesseract. The
simulated GPUs of the rollout only wait, and finish at staggered times. Each
picture is streamed over a websocket to a server in this process as soon as it
is finished, and scored while the rollout generates the others. A second run of
the step, for comparison, scores all pictures after the rollout.

The next part injects faults: two worker processes send pictures to an HTTP
scorer while one of the workers is killed, the scorer is down for 3 s, and
another reward function raises an exception. Every picture still gets its own
score, exactly once.

The last part shows what the trainer receives: the column rm_scores, and the
check by which verl skips its own reward computation.

The demo prints the rewards by prompt group, their error against the true text
of the pictures, the step time of both runs compared with an ideal queue and a
lower bound for every schedule, and the cost of the faults. The demo takes about
a minute and writes into --out:

  report.html             report with pictures and the timeline of the workers
  scores.jsonl            result of every sample
  trace.json              times of both runs
  rm_scores.safetensors   rm_scores, F32 [B,1], and rm_valid, BOOL [B,1]
  report.txt              printed text

With --stay, or make demo STAY=1, the server keeps running until Ctrl-C, and the
demo prints the address of the status page.

--verify recomputes every printed figure from these files. The exit code is 1 if
a figure differs.`

const demoExample = `
rewardloop demo
rewardloop demo --verify`

func demoCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", GroupID: groupScore, Args: nothingElse,
		Short: "simulate and measure a training step on real pictures",
		Long:  demoText, Example: demoExample,
	}
	data := cmd.Flags().String("data", "", "`folder` of pictures with samples.jsonl; default: testdata/golden/ocr of the clone")
	out := cmd.Flags().String("out", filepath.Join("out", "demo"), "`folder` for the results")
	verify := cmd.Flags().Bool("verify", false, "recompute the figures from the files in --out; run nothing else")
	samples := cmd.Flags().Int("samples", 0, "use only the first `n` pictures; 0: all")
	reader := cmd.Flags().String("reader", ocr.ReaderAuto, "OCR `reader`: ppocr, tesseract, or auto (ppocr if installed, else tesseract)")
	seed := cmd.Flags().Uint64("seed", 1, "`seed` of the simulated rollout")
	stay := cmd.Flags().Bool("stay", false, "keep the server running until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{ocr.ReaderPPOCR, ocr.ReaderTesseract, ocr.ReaderAuto}, *reader) {
			return fmt.Errorf("--reader %q: want ppocr, tesseract or auto", *reader)
		}
		if *verify {
			return verifyDemo(e, *out)
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		err := runDemo(ctx, e, demo.Config{Reader: *reader, Samples: *samples, Seed: *seed, Version: release()}, *data, *out, *stay)
		if err = interrupted(ctx, err, "nothing was written"); err != nil {
			return failed(err)
		}
		return nil
	}
	return cmd
}

// errUnscored ends a demo that is complete but not all right.
var errUnscored = errors.New("not every sample got a score")

func runDemo(ctx context.Context, e *env, cfg demo.Config, data, out string, stay bool) error {
	dir, err := demo.Folder(data)
	if err != nil {
		return err
	}
	pictures, err := demo.Load(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stderr, "rewardloop demo: %d pictures of %s; starting a server\n", len(pictures), dir)
	cfg.Log = slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.Progress = demo.NewProgress(e.stderr, isTerminal(e.stderr))
	d, server, err := demo.RunServing(ctx, cfg, pictures)
	if err != nil {
		return err
	}
	if stay {
		defer server.Stop()
	} else {
		server.Stop()
	}
	report, err := d.Report()
	if err != nil {
		return err
	}
	if err := d.Save(out, report); err != nil {
		return err
	}
	if err := d.SavePage(ctx, out, pictures, report); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "\n%s\n", report)
	if report.Streaming == nil {
		printFiles(e.stdout, out)
		return fmt.Errorf("%w: see the errors in %s", errUnscored, filepath.Join(out, demo.ScoresFile))
	}
	if err := breakIt(ctx, e, pictures); err != nil {
		return err
	}
	trainer, err := d.Trainer(ctx, interpreter(e), out)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s\n", trainer)
	printFiles(e.stdout, out)
	if stay {
		fmt.Fprintf(e.stdout, "\nThe server is still up. Its page: %s\nCtrl-C ends it.\n", server.Page)
		<-ctx.Done() // somebody looks at the page until then
	}
	return nil
}

// interpreter is that of what the demo runs in Python.
func interpreter(e *env) string {
	named, _ := e.getenv("REWARDLOOP_PYTHON")
	return cmp.Or(named, "python3")
}

// breakIt is the second part of the demo.
func breakIt(ctx context.Context, e *env, pictures []demo.Picture) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = exec.LookPath(interpreter(e))
	fmt.Fprintln(e.stderr, "breaking it: a worker is killed, a scorer is down, a neighbour's function raises")
	d, err := demo.Break(ctx, demo.DamageConfig{Program: program, Python: err == nil}, pictures)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s\n", d)
	if !d.Whole() {
		return errUnscored
	}
	return nil
}

func printFiles(w io.Writer, out string) {
	flag := ""
	if out != filepath.Join("out", "demo") {
		flag = " --out " + out
	}
	fmt.Fprintf(w, `The report with pictures: %s
Written beside it: %s, %s,
  %s (rm_scores [B,1], what the trainer takes), %s

Next
  %[6]s demo --verify%[7]s
      computes every figure above again from these files
  %[6]s serve reward.custom_reward_function.path=builtin://ocr
      the same server for your own rollouts; see examples/flowgrpo_ocr
`, filepath.Join(out, demo.PageFile), demo.ScoresFile, demo.TraceFile, demo.TensorsFile, demo.ReportFile, os.Args[0], flag)
}

func verifyDemo(e *env, out string) error {
	report, err := demo.Verify(out)
	if err != nil {
		return failed(err)
	}
	fmt.Fprintf(e.stdout, "%s\nVerified: all figures above were computed again from %s and are the printed ones.\n"+
		"%d rewards follow from the texts that were read, and %s holds them.\n", report, out, report.Scored, demo.TensorsFile)
	return nil
}
